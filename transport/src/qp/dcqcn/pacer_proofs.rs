//! Proofs about the times at which packets may leave.

use alloc::sync::Arc;

use super::{FRACTION_DIGITS, Paced, Pacer, duration};
use crate::proofs::check;
use crate::qp::dcqcn::DcqcnParameters;

/// Rates in bit/s: of the slowest sender, of links, and rates that no link has.
const RATES: [u64; 6] = [0, 1, 1_000_000, 10_000_000_000, 400_000_000_000, u64::MAX];

/// Bytes take the time of their bits at the rate, at most 2^−10 ns less, and the rest is less than a ns.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn bytes_take_as_long_as_their_rate_says() {
    check(|from| {
        let (bytes, rate) = (from.up_to(1 << 24), from.one_of(&RATES));
        let (ns, fraction) = duration(bytes, rate);
        assert!(fraction < 1 << FRACTION_DIGITS);
        let parts = u128::from(ns) << FRACTION_DIGITS | u128::from(fraction);
        let (rate, work) = (u128::from(rate.max(1)), (u128::from(bytes) * 8_000_000_000) << FRACTION_DIGITS);
        let is_capped = parts == u128::from(u64::MAX);
        assert!(parts * rate <= work && (is_capped || work < (parts + 1) * rate));
    });
}

/// A larger number of bytes never takes less time.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn more_bytes_take_no_less_time() {
    check(|from| {
        let (bytes, more, rate) = (from.up_to(1 << 16), from.up_to(1 << 16), from.one_of(&RATES));
        assert!(duration(bytes, rate) <= duration(bytes + more, rate));
    });
}

/// A packet leaves at once or gets a later time; it leaves when such a time has come twice.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(5))]
#[cfg_attr(not(kani), test)]
fn a_packet_that_is_held_leaves_at_the_third_try() {
    check(|from| {
        let mut pacer = Pacer::new(Arc::new(DcqcnParameters::PAPER));
        pacer.next_ns = from.up_to(u64::MAX / 2);
        (pacer.requests_wait, pacer.answers_wait) = (from.bool(), from.bool());
        pacer.last = from.one_of(&[Paced::Requests, Paced::Answers]);
        let side = from.one_of(&[Paced::Requests, Paced::Answers]);
        let mut now_ns = from.up_to(u64::MAX / 2);
        let first_ns = pacer.next_ns;
        for tries in 1.. {
            pacer.handle_timeout(now_ns);
            if pacer.admits(side, now_ns) {
                assert!(now_ns >= first_ns && pacer.held_until_ns().is_none());
                return;
            }
            let until_ns = pacer.held_until_ns().unwrap_or(0);
            assert!(until_ns > now_ns && tries < 3);
            now_ns = until_ns;
        }
    });
}

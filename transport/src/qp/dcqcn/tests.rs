//! The reaction point, compared with numbers computed by hand from the algorithm.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{DcqcnParameters, ReactionPoint};

const US: u64 = 1_000;
const M: u64 = 1_000_000;
const ALPHA_ONE: u32 = 1 << 20;

fn point(parameters: DcqcnParameters) -> ReactionPoint {
    assert_eq!(parameters.check(), Ok(()));
    ReactionPoint::new(Arc::new(parameters))
}

/// Returns the rate after each of a number of increases by the timer.
fn recovered(point: &mut ReactionPoint, from_ns: u64, steps: u64) -> Vec<u64> {
    (1..=steps)
        .map(|step| {
            point.advance(from_ns + step * 55 * US);
            point.current()
        })
        .collect()
}

#[test]
fn a_cnp_halves_the_line_rate_while_alpha_is_one() {
    let mut point = point(DcqcnParameters::PAPER);
    assert_eq!((point.current(), point.target(), point.alpha()), (40_000 * M, 40_000 * M, 0));
    point.handle_cnp(7 * US);
    assert_eq!((point.current(), point.target(), point.alpha()), (20_000 * M, 40_000 * M, ALPHA_ONE));
    point.handle_cnp(57 * US);
    assert_eq!((point.current(), point.target(), point.alpha()), (10_000 * M, 20_000 * M, ALPHA_ONE));
}

#[test]
fn five_steps_of_fast_recovery_halve_the_way_to_the_target_and_additive_steps_follow() {
    let mut point = point(DcqcnParameters::PAPER);
    point.handle_cnp(0);
    point.handle_cnp(50 * US);
    let rates = recovered(&mut point, 50 * US, 7);
    assert_eq!(rates[..5], [15_000 * M, 17_500 * M, 18_750 * M, 19_375 * M, 19_687_500_000]);
    // Rt = 20.04, then 20.08 Gbit/s.
    assert_eq!(rates[5..], [19_863_750_000, 19_971_875_000]);
    assert_eq!(point.target(), 20_080 * M);
}

#[test]
fn alpha_falls_by_a_256th_in_each_period_without_a_cnp_and_the_next_cut_is_smaller() {
    let mut point = point(DcqcnParameters::PAPER);
    point.handle_cnp(0);
    point.advance(54_999);
    assert_eq!(point.alpha(), ALPHA_ONE);
    point.advance(55 * US);
    assert_eq!(point.alpha(), 1_044_480);
    point.advance(110 * US);
    assert_eq!(point.alpha(), 1_040_400);
    // Rc was 35 Gbit/s: 35 (1 - 1040400 / 2^21).
    point.handle_cnp(110 * US);
    assert_eq!((point.current(), point.target()), (35_000 * M - 17_363_548_278, 35_000 * M));
    assert_eq!(point.alpha(), 1_036_335 + 4_096);
}

#[test]
fn the_byte_counter_raises_the_rate_like_the_timer_and_both_lead_to_hyper_increase() {
    let mut point = point(DcqcnParameters { rpg_byte_reset: 10_000, ..DcqcnParameters::PAPER });
    point.handle_cnp(0);
    point.handle_cnp(0);
    point.handle_sent(9_999, 1);
    assert_eq!(point.current(), 10_000 * M);
    point.handle_sent(1, 2);
    assert_eq!(point.current(), 15_000 * M);
    // There are six stages by bytes: five of fast recovery, one additive.
    point.handle_sent(50_000, 3);
    assert_eq!((point.current(), point.target()), (19_863_750_000, 20_040 * M));
    // Timer stages 1 to 5 are additive, because the byte counter is beyond F and the timer is not.
    point.advance(5 * 55 * US);
    assert_eq!(point.target(), 20_240 * M);
    // Both are beyond F by one, then the byte counter by two: i = 1 each time.
    point.advance(6 * 55 * US);
    assert_eq!(point.target(), 20_440 * M);
    point.handle_sent(10_000, 6 * 55 * US);
    assert_eq!(point.target(), 20_640 * M);
    // i = 2.
    point.advance(7 * 55 * US);
    assert_eq!(point.target(), 21_040 * M);
}

#[test]
fn a_cnp_begins_recovery_anew() {
    let mut point = point(DcqcnParameters::PAPER);
    point.handle_cnp(0);
    point.handle_cnp(50 * US);
    recovered(&mut point, 50 * US, 6);
    let before = point.current();
    point.handle_cnp(400 * US);
    assert_eq!(point.target(), before);
    let cut = point.current();
    point.advance(454_999);
    assert_eq!(point.current(), cut, "the timer began at the CNP");
    point.advance(455 * US);
    assert_eq!(point.current(), cut.midpoint(before));
}

#[test]
fn as_on_connectx_cuts_keep_a_distance_and_the_target_waits_for_an_increase() {
    let mut point = point(DcqcnParameters::CONNECTX);
    point.handle_cnp(0);
    // 100 (1 - 1023/2048) Gbit/s; alpha = (1019 x 1023 + 5 x 1024) / 1024 in 1/1024.
    assert_eq!((point.current(), point.target(), point.alpha()), (50_048_828_125, 100_000 * M, FIRST));
    point.handle_cnp(US);
    assert_eq!(point.current(), 50_048_828_125, "4 us must pass");
    point.advance(4 * US);
    assert_eq!((point.current(), point.target()), (SECOND, 100_000 * M), "the target stays");
    point.advance(304 * US);
    assert_eq!(point.current(), SECOND.midpoint(100_000 * M));
    let before = point.current();
    point.handle_cnp(305 * US);
    assert_eq!(point.target(), before, "after an increase by the timer it does not");
}

/// Returns the result of arithmetic with 2^20ths.
const FIRST: u32 = 1_047_557;
const SECOND: u64 = 25_413_224_940;

#[test]
fn the_rate_has_a_floor_and_a_first_value() {
    let mut low = point(DcqcnParameters { rpg_min_rate: 100, ..DcqcnParameters::PAPER });
    for step in 0..20 {
        low.handle_cnp(step * 50 * US);
    }
    assert_eq!(low.current(), 100 * M);
    let mut first = point(DcqcnParameters { rate_to_set_on_first_cnp: 8_000, ..DcqcnParameters::PAPER });
    first.handle_cnp(0);
    assert_eq!((first.current(), first.target()), (8_000 * M, 8_000 * M));
    first.handle_cnp(50 * US);
    assert_eq!((first.current(), first.target()), (4_000 * M, 8_000 * M));
    let mut gentle = point(DcqcnParameters { rpg_min_dec_fac: 90, ..DcqcnParameters::PAPER });
    gentle.handle_cnp(0);
    assert_eq!(gentle.current(), 36_000 * M);
}

#[test]
fn a_sender_that_has_recovered_is_as_before_the_first_cnp() {
    let mut point = point(DcqcnParameters::PAPER);
    point.handle_cnp(0);
    point.advance(100_000 * US);
    assert_eq!((point.current(), point.alpha()), (40_000 * M, 0));
    point.handle_cnp(100_001 * US);
    assert_eq!((point.current(), point.alpha()), (20_000 * M, ALPHA_ONE));
}

#[test]
fn a_long_silence_takes_bounded_work() {
    let slow = DcqcnParameters { rpg_ai_rate: 1, dce_tcp_g: 1023, ..DcqcnParameters::CONNECTX };
    let mut point = point(slow);
    point.handle_cnp(0);
    // The time is three hundred years.
    point.advance(1 << 63);
    assert!(point.current() > 50_048_828_125 && point.alpha() < ALPHA_ONE / 2);
    point.handle_cnp(u64::MAX);
    assert!(point.current() >= M);
}

#[test]
fn parameters_out_of_bounds_are_named() {
    for (parameters, part) in [
        (DcqcnParameters { dce_tcp_g: 1024, ..DcqcnParameters::CONNECTX }, "dce_tcp_g is 1024, and must be"),
        (DcqcnParameters { rpg_byte_reset: 0, ..DcqcnParameters::CONNECTX }, "rpg_byte_reset is 0"),
        (DcqcnParameters { rpg_max_rate: 40_001, ..DcqcnParameters::PAPER }, "from 0 to 40000"),
        (DcqcnParameters { rpg_max_rate: 5, ..DcqcnParameters::PAPER }, "rpg_min_rate is 10"),
    ] {
        let sentence = parameters.check().unwrap_err();
        assert!(sentence.contains(part), "{sentence}");
    }
}

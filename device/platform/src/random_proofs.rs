//! Proofs about the ranges of random numbers.

use pumice_transport::proofs::check;

use super::scaled;

/// Proves that a draw that is scaled to a range lies in it, and that the empty range gives 0.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_scaled_draw_is_below_its_bound() {
    check(|from| {
        let (draw, bound) = (from.u64(), from.u64());
        let number = scaled(draw, bound);
        assert!(number < bound || bound == 0 && number == 0);
    });
}

/// Proves that a larger draw is never scaled to a smaller number, and that both ends of a range can be
/// reached.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn scaling_keeps_the_order_of_draws() {
    check(|from| {
        let (draw, other, bound) = (from.u64(), from.u64(), from.between(1, u32::MAX.into()));
        assert!(scaled(draw.min(other), bound) <= scaled(draw.max(other), bound));
        assert_eq!((scaled(0, bound), scaled(u64::MAX, bound)), (0, bound - 1));
    });
}

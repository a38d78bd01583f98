//! Paths of a queue pair: its entropy values, which of them are active, and the state of each.

mod profile;
#[cfg(any(test, kani))]
mod proofs;
mod set;

pub use profile::{Ev, EvField, EvFormat, EvProfile, FormatError, ReversePaths, expand};
pub use set::{PathChange, PathReport, PathSet, PathState, PathStatus};

/// A pseudo-random generator that depends only on its seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }

    /// Returns a number below the bound, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.draw()) * bound as u128) >> 64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.below(last + 1);
            list.swap(last, other);
        }
    }
}

//! All that the seed decides.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// A stream of draws. Each use has a stream of its own: one more draw of one does not move the others.
#[derive(Debug, Clone)]
pub(crate) struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// The stream of this name. Seeds next to each other give streams that have nothing in common.
    pub(crate) fn new(seed: u64, name: u64) -> Chance {
        // seed_from_u64 spreads the bits of its argument.
        let mut mixed = Xoshiro256PlusPlus::seed_from_u64(seed);
        let salt = mixed.next_u64();
        Chance(Xoshiro256PlusPlus::seed_from_u64(salt ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A number less than `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.next_u64() % end }
    }

    /// True in so many parts of a million.
    pub(crate) fn happens(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// Bytes for a program that asks for random ones.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

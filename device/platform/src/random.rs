//! The random numbers of faults and of the beginnings of number ranges: a generator whose output is the same
//! on every machine and in every version.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of numbers that a seed determines.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    #[doc(hidden)]
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// Returns a generator for one of several purposes of a seed: its numbers do not depend on those drawn
    /// for other purposes.
    pub fn fork(&self, purpose: u64) -> Random {
        let mut own = self.clone();
        let base = own.next_u64();
        Random::new(Random::new(base ^ purpose).next_u64())
    }

    #[doc(hidden)]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform number in 0..`bound`, 0 for a bound of 0. It always draws once, so that a change of
    /// one probability leaves later decisions unchanged.
    pub fn below(&mut self, bound: u64) -> u64 {
        scaled(self.next_u64(), bound)
    }

    /// Returns true `ppm` times in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }
}

/// Scales a draw from 0..2^64 to one from 0..`bound`.
pub const fn scaled(draw: u64, bound: u64) -> u64 {
    ((draw as u128 * bound as u128) >> 64) as u64
}

#[cfg(any(test, kani))]
#[path = "random_proofs.rs"]
mod proofs;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn chances_come_out_as_asked() {
        let mut random = Random::new(1);
        let hits = (0..100_000).filter(|_| random.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !random.chance(0)) && (0..1000).all(|_| random.chance(1_000_000)));
    }

    #[test]
    fn purposes_have_streams_of_their_own() {
        let random = Random::new(1);
        let first = |purpose| random.fork(purpose).next_u64();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        assert_ne!(first(1), Random::new(1).next_u64());
    }
}

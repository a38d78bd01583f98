//! The random numbers that the seed determines.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// A stream of random numbers. Each use has its own stream, so that one more draw of one does not change the
/// others.
#[derive(Debug, Clone)]
pub(crate) struct SeededRandom(Xoshiro256PlusPlus);

impl SeededRandom {
    /// Returns the stream with this name. Adjacent seeds give unrelated streams.
    pub(crate) fn new(seed: u64, name: u64) -> SeededRandom {
        // seed_from_u64 spreads the bits of its argument.
        let mut mixed = Xoshiro256PlusPlus::seed_from_u64(seed);
        let salt = mixed.next_u64();
        SeededRandom(Xoshiro256PlusPlus::seed_from_u64(salt ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Returns a number less than `end`, or 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.next_u64() % end }
    }

    /// Returns true with this probability, in parts per million.
    pub(crate) fn draw_bool(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// Fills a buffer for a program that asks for random bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// Maximum number of draws in a row that are made in advance.
const MAX_DRAWS_AHEAD: u32 = 64;

/// Draws that are made in advance: the number of misses, and whether the draw behind them hits.
#[derive(Debug, Default)]
pub(crate) struct DrawsAhead {
    misses: u32,
    hits: bool,
}

impl DrawsAhead {
    /// Returns the number of misses in a row, as far as they are drawn in advance.
    pub(crate) fn misses(&mut self, random: &mut SeededRandom, ppm: u32) -> u32 {
        if self.misses == 0 && !self.hits {
            while self.misses < MAX_DRAWS_AHEAD && !self.hits {
                self.hits = random.draw_bool(ppm);
                self.misses += u32::from(!self.hits);
            }
        }
        self.misses
    }

    /// Reports whether the next draw hits.
    pub(crate) fn hits(&mut self, random: &mut SeededRandom, ppm: u32) -> bool {
        if self.misses(random, ppm) > 0 {
            self.misses -= 1;
            return false;
        }
        std::mem::take(&mut self.hits)
    }

    /// Consumes this many draws, all of them misses.
    pub(crate) fn pass(&mut self, draws: u32) {
        self.misses = self.misses.saturating_sub(draws);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_ahead_of_time_are_those_that_are_made_one_by_one() {
        let ppm = 100_000;
        let (mut one, mut other) = (SeededRandom::new(5, 1), SeededRandom::new(5, 1));
        let mut ahead = DrawsAhead::default();
        let mut drawn = Vec::new();
        while drawn.len() < 1_000 {
            // Some misses are consumed at once.
            let unseen = ahead.misses(&mut one, ppm) / 2;
            ahead.pass(unseen);
            drawn.extend((0..unseen).map(|_| false));
            drawn.push(ahead.hits(&mut one, ppm));
        }
        assert!(drawn.iter().all(|hits| *hits == other.draw_bool(ppm)));
        assert_eq!(DrawsAhead::default().misses(&mut one, 0), MAX_DRAWS_AHEAD);
    }
}

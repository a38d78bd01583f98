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

/// Draws in a row that are made ahead of time at most.
const MOST_AHEAD: u32 = 64;

/// Draws that are made ahead of time: so many that come to nothing, and whether the one behind them does not.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    quiet: u32,
    strikes: bool,
}

impl Ahead {
    /// How many draws in a row come to nothing, as far as they are made.
    pub(crate) fn quiet(&mut self, chance: &mut Chance, ppm: u32) -> u32 {
        if self.quiet == 0 && !self.strikes {
            while self.quiet < MOST_AHEAD && !self.strikes {
                self.strikes = chance.happens(ppm);
                self.quiet += u32::from(!self.strikes);
            }
        }
        self.quiet
    }

    /// Whether the next draw comes to something.
    pub(crate) fn strikes(&mut self, chance: &mut Chance, ppm: u32) -> bool {
        if self.quiet(chance, ppm) > 0 {
            self.quiet -= 1;
            return false;
        }
        std::mem::take(&mut self.strikes)
    }

    /// So many draws came to nothing.
    pub(crate) fn pass(&mut self, draws: u32) {
        self.quiet = self.quiet.saturating_sub(draws);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_ahead_of_time_are_those_that_are_made_one_by_one() {
        let ppm = 100_000;
        let (mut one, mut other) = (Chance::new(5, 1), Chance::new(5, 1));
        let mut ahead = Ahead::default();
        let mut drawn = Vec::new();
        while drawn.len() < 1_000 {
            // Some pass unseen.
            let unseen = ahead.quiet(&mut one, ppm) / 2;
            ahead.pass(unseen);
            drawn.extend((0..unseen).map(|_| false));
            drawn.push(ahead.strikes(&mut one, ppm));
        }
        assert!(drawn.iter().all(|strikes| *strikes == other.happens(ppm)));
        assert_eq!(Ahead::default().quiet(&mut one, 0), MOST_AHEAD);
    }
}

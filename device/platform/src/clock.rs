//! The two clocks that a device can have, and the random numbers of faults and number ranges.
//!
//! The random numbers of faults and of the beginnings of number ranges: a generator whose output is the same
//! on every machine and in every version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

pub use crate::outside::time::{monotonic_ns, process_time_ns};

/// A clock that counts nanoseconds since some origin and never goes back.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The operating system's monotonic clock, less its value at the origin.
    Monotonic {
        /// The value of the monotonic clock at the origin, in ns.
        origin_ns: u64,
    },
    /// Virtual time, moved by a `World`.
    Virtual(VirtualTime),
}

impl Clock {
    /// Returns the operating system's clock, counting from now.
    pub fn monotonic() -> Clock {
        Clock::Monotonic { origin_ns: monotonic_ns() }
    }

    /// Returns the nanoseconds since the origin.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { origin_ns } => monotonic_ns().saturating_sub(*origin_ns),
            Clock::Virtual(time) => time.now_ns(),
        }
    }

    /// Returns the value at the origin of the clock that all processes of the host share, in ns; 0 in virtual
    /// time.
    pub fn origin_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { origin_ns } => *origin_ns,
            Clock::Virtual(_) => 0,
        }
    }

    /// Reports whether this is virtual time, which no background thread may follow.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }
}

/// Returns the earliest of some times, if there is one; `u64::MAX` means never. The code uses a number for
/// "never" and not a chain over options: the compiler reads the value of an option before its discriminant
/// there, which valgrind reports as a use of uninitialised memory.
#[inline(always)]
pub fn earliest<const N: usize>(times_ns: [Option<u64>; N]) -> Option<u64> {
    let mut first_ns = u64::MAX;
    for at_ns in times_ns {
        first_ns = first_ns.min(at_ns.unwrap_or(u64::MAX));
    }
    (first_ns != u64::MAX).then_some(first_ns)
}

/// A shared virtual clock in ns.
#[derive(Debug, Clone, Default)]
pub struct VirtualTime(Arc<AtomicU64>);

impl VirtualTime {
    /// Returns the present time, in ns.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Moves time forward; a time in the past is ignored.
    pub fn advance_to(&self, now_ns: u64) {
        self.0.fetch_max(now_ns, Ordering::AcqRel);
    }
}

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
mod random_proofs;

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

//! Waiting for a lock of a file that others have.

use std::time::{Duration, Instant};

use super::system;

/// Pauses between two attempts: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A wait in pauses that become longer. Hundreds of processes that ask again every millisecond take the
/// processor from the one that has the lock; and pauses of different lengths keep them from all asking at
/// once.
#[derive(Debug)]
pub(crate) struct Wait {
    begun: Instant,
    patience: Duration,
    pause: Duration,
    /// Different in each process.
    random: u32,
}

impl Wait {
    pub(crate) fn new(patience: Duration) -> Wait {
        let random = system::process_id().wrapping_mul(0x9e37_79b9) | 1;
        Wait { begun: system::now(), patience, pause: FIRST_PAUSE, random }
    }

    /// How long it has been.
    pub(crate) fn waited(&self) -> Duration {
        system::now().duration_since(self.begun)
    }

    /// Pauses. False: the wait is over.
    pub(crate) fn pause(&mut self) -> bool {
        if self.waited() > self.patience {
            return false;
        }
        // Between half of the pause and all of it.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let half = self.pause / 2;
        system::sleep(half + half * (self.random % 256) / 256);
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
        true
    }
}

//! Waiting for a lock of a file that others have.

use std::time::{Duration, Instant};

use crate::system;

/// Pause before the second attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A wait in pauses that become longer. Hundreds of processes that try every millisecond would take the
/// processor from the one that has the lock; and pauses of different lengths keep them from all trying at
/// once.
#[derive(Debug)]
pub(crate) struct RetryBackoff {
    begun: Instant,
    patience: Duration,
    pause: Duration,
    /// State of a random number generator; different in each process.
    random: u32,
}

impl RetryBackoff {
    pub(crate) fn new(patience: Duration) -> RetryBackoff {
        let random = system::process_id().wrapping_mul(0x9e37_79b9) | 1;
        RetryBackoff { begun: system::now(), patience, pause: FIRST_PAUSE, random }
    }

    /// Returns how long the wait has lasted.
    pub(crate) fn waited(&self) -> Duration {
        system::now().duration_since(self.begun)
    }

    /// Pauses. Returns false if the wait is over.
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

//! Completion counters, which count completed requests without a work completion for each.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of completed requests, with separate numbers for successful and failed ones. The numbers wrap.
///
/// Queue pairs increment the counter under the engine's lock, and programs read it at any time. A reader that
/// sees a number also sees the data that the counted requests have stored.
#[derive(Debug, Default)]
pub struct CompletionCounter {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl CompletionCounter {
    /// Counts a request that completed.
    pub fn count(&self, succeeded: bool) {
        self.of(succeeded).fetch_add(1, Ordering::Release);
    }

    /// Returns the number of requests that completed successfully, or that failed.
    pub fn read(&self, succeeded: bool) -> u64 {
        self.of(succeeded).load(Ordering::Acquire)
    }

    /// Sets the number from which counting continues.
    pub fn set(&self, succeeded: bool, value: u64) {
        self.of(succeeded).store(value, Ordering::Release);
    }

    /// Adds an amount to the number.
    pub fn add(&self, succeeded: bool, amount: u64) {
        self.of(succeeded).fetch_add(amount, Ordering::AcqRel);
    }

    const fn of(&self, succeeded: bool) -> &AtomicU64 {
        if succeeded { &self.succeeded } else { &self.failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numbers_are_apart_and_wrap() {
        let counter = CompletionCounter::default();
        counter.count(true);
        counter.set(false, u64::MAX);
        counter.count(false);
        counter.add(true, 4);
        assert_eq!((counter.read(true), counter.read(false)), (5, 0));
    }
}

//! The atomic number of loom's models: loom's own, with a mistake in it or none. Models include this file.

use std::sync::atomic::Ordering;

use super::AtomicWord;

/// No mistake: the word behaves as the standard library's.
pub(super) const NONE: u8 = 0;
/// A mistake: an exchange is a load and a store, between which other threads may run.
pub(super) const TORN: u8 = 1;
/// The same mistake, only in exchanges that reset a flag.
pub(super) const TORN_RESET: u8 = 2;
/// A mistake: a store orders nothing.
pub(super) const UNORDERED: u8 = 3;

/// An atomic of loom, with a mistake in it or none.
pub(super) struct ModelWord<const MISTAKE: u8>(loom::sync::atomic::AtomicU64);

impl<const MISTAKE: u8> AtomicWord for ModelWord<MISTAKE> {
    fn new(value: u64) -> Self {
        ModelWord(loom::sync::atomic::AtomicU64::new(value))
    }

    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, if MISTAKE == UNORDERED { Ordering::Relaxed } else { order });
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        let is_torn = MISTAKE == TORN || (MISTAKE == TORN_RESET && value == 0);
        if !is_torn {
            return self.0.swap(value, order);
        }
        let before = self.0.load(Ordering::Acquire);
        self.0.store(value, Ordering::Release);
        before
    }

    fn add(&self, value: u64, order: Ordering) {
        self.0.fetch_add(value, order);
    }

    fn sub(&self, value: u64, order: Ordering) {
        self.0.fetch_sub(value, order);
    }
}

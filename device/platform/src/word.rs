//! An atomic number that a model may replace by its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic number: the standard library's, or that of the model.
pub trait AtomicWord {
    #[doc(hidden)]
    fn new(value: u64) -> Self;
    #[doc(hidden)]
    fn load(&self, order: Ordering) -> u64;
    #[doc(hidden)]
    fn store(&self, value: u64, order: Ordering);
    #[doc(hidden)]
    fn swap(&self, value: u64, order: Ordering) -> u64;
    #[doc(hidden)]
    fn add(&self, value: u64, order: Ordering);
    #[doc(hidden)]
    fn sub(&self, value: u64, order: Ordering);
}

impl AtomicWord for AtomicU64 {
    #[inline]
    fn new(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }

    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }

    #[inline]
    fn add(&self, value: u64, order: Ordering) {
        self.fetch_add(value, order);
    }

    #[inline]
    fn sub(&self, value: u64, order: Ordering) {
        self.fetch_sub(value, order);
    }
}

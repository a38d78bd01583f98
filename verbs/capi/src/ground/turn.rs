//! What one thread uses between two calls of the program: `ibv_wr_start` and `ibv_wr_complete`,
//! `ibv_start_poll` and `ibv_end_poll`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_device::outside;

/// A value for the thread whose turn it is.
pub(crate) struct Turn<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used in a turn only, and there is one turn at a time.
unsafe impl<T: Send> Sync for Turn<T> {}

impl<T> Turn<T> {
    pub(crate) const fn new(value: T) -> Turn<T> {
        Turn { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Begins this thread's turn when no other thread has one.
    #[inline]
    pub(crate) fn begin(&self) {
        while self.taken.swap(true, Ordering::Acquire) {
            outside::idle();
        }
    }

    /// Ends this thread's turn.
    #[inline]
    pub(crate) fn end(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Uses the value in this thread's turn.
    #[inline]
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the verbs API has the thread whose turn it is make the calls that belong to the turn, one
        // after the other, and no other thread make any. So this is the only use of the value.
        look(unsafe { &mut *self.value.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_turn_at_a_time() {
        let sum = Turn::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        sum.begin();
                        sum.with(|sum| *sum += 1);
                        sum.with(|sum| *sum += 1);
                        sum.end();
                    }
                });
            }
        });
        sum.begin();
        assert_eq!(sum.with(|sum| *sum), 800);
    }
}

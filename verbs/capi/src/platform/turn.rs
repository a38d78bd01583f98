//! A value that one thread uses between two calls of the program: `ibv_wr_start` and `ibv_wr_complete`,
//! `ibv_start_poll` and `ibv_end_poll`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_device::outside;

/// A value that only the thread whose turn it is uses.
pub(crate) struct TurnCell<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used only in a turn, and there is one turn at a time.
unsafe impl<T: Send> Sync for TurnCell<T> {}

impl<T> TurnCell<T> {
    pub(crate) const fn new(value: T) -> TurnCell<T> {
        TurnCell { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
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
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the verbs API requires the thread whose turn it is to make the calls of the turn one after
        // the other, and no other thread to make any. So this is the only use of the value.
        run(unsafe { &mut *self.value.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_turn_at_a_time() {
        let sum = TurnCell::new(0_u64);
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

//! A value whose changes threads may wait for. While no thread waits, a change costs no system call: the
//! condition variables of the standard library make one at every notification.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::outside::time;

/// A value whose changes threads may wait for, with the number of waiting threads.
#[derive(Debug, Default)]
pub struct Awaited<T> {
    state: Mutex<AwaitedState<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AwaitedState<T> {
    value: T,
    waiters: usize,
}

impl<T> Awaited<T> {
    /// Returns an instance with this value.
    pub const fn new(value: T) -> Awaited<T> {
        Awaited { state: Mutex::new(AwaitedState { value, waiters: 0 }), changed: Condvar::new() }
    }

    /// Changes the value. Threads that wait for a change check it again.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.value);
        if state.waiters > 0 {
            self.changed.notify_all();
        }
        result
    }

    /// Calls `look` with the value.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().value)
    }

    /// Blocks until the value satisfies `wanted`.
    pub fn wait(&self, wanted: impl Fn(&T) -> bool) {
        let mut state = self.lock();
        state.waiters += 1;
        while !wanted(&state.value) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiters -= 1;
    }

    /// Blocks until the value satisfies `wanted`, but no longer than `patience`. Returns whether it does.
    pub fn wait_for(&self, patience: Duration, wanted: impl Fn(&T) -> bool) -> bool {
        let begun = time::now();
        let mut state = self.lock();
        state.waiters += 1;
        while !wanted(&state.value) {
            let left = patience.saturating_sub(time::since(begun));
            if left.is_zero() {
                break;
            }
            state = time::wait(&self.changed, state, left);
        }
        state.waiters -= 1;
        wanted(&state.value)
    }

    fn lock(&self) -> MutexGuard<'_, AwaitedState<T>> {
        // A poisoned lock is taken: the number of waiters is right at all times, and values are changed as a
        // whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_thread_that_waits_is_woken_by_every_change_until_the_wanted_one() {
        let number = Arc::new(Awaited::new(0));
        let waiter = std::thread::spawn({
            let number = Arc::clone(&number);
            move || {
                number.wait(|&number| number == 1000);
                number.look(|&number| number)
            }
        });
        for _ in 0..1000 {
            number.change(|number| *number += 1);
        }
        assert_eq!(waiter.join().unwrap(), 1000);
    }

    #[test]
    fn patience_ends() {
        let number = Awaited::new(0);
        assert!(!number.wait_for(Duration::from_millis(1), |&number| number == 1));
        number.change(|number| *number = 1);
        assert!(number.wait_for(Duration::ZERO, |&number| number == 1));
    }
}

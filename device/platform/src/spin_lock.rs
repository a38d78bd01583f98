//! A lock for critical sections of some hundred instructions, which costs one atomic exchange.
//!
//! The standard library's lock costs two: its release must find out whether a thread sleeps. An exchange
//! takes as long as twenty other instructions, which is noticeable where each message takes locks. This lock
//! wakes no thread: a thread that finds it taken tries again, yields to others, and at last sleeps a little,
//! so that a holder of lower priority continues. `spin_lock_model.rs` runs it in every order that the memory
//! model allows.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::outside;
use crate::word::AtomicWord;

/// Number of attempts before other threads get the processor: the holder runs on another one.
const SPINS: u32 = 64;
/// Number of yields of the processor before the thread sleeps.
const YIELDS: u32 = 64;
/// The duration of a sleep.
const SLEEP: Duration = Duration::from_micros(50);

/// The flag of a lock: whether it is taken.
#[derive(Debug)]
pub struct LockFlag<W>(W);

impl<W: AtomicWord> LockFlag<W> {
    /// Returns a free lock flag.
    pub fn new() -> LockFlag<W> {
        LockFlag(W::new(0))
    }

    /// Takes the lock, and sees what was done before it was released last. Returns false if another thread
    /// has it.
    #[inline]
    pub fn take(&self) -> bool {
        self.0.swap(1, Ordering::Acquire) == 0
    }

    /// Reports whether another thread seems to have the lock.
    #[inline]
    pub fn is_probably_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Releases the lock.
    #[inline]
    pub fn release(&self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<W: AtomicWord> Default for LockFlag<W> {
    fn default() -> LockFlag<W> {
        LockFlag::new()
    }
}

/// A value that one thread at a time uses.
#[derive(Debug)]
pub struct SpinLock<T> {
    taken: LockFlag<AtomicU64>,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has taken the lock gets to the value, and all that it did with it happened
// before another one takes it.
unsafe impl<T: Send> Sync for SpinLock<T> {}

// Unwind safety is as in the standard library's lock: the users of the value have to handle what a panic
// left.
impl<T> RefUnwindSafe for SpinLock<T> {}
impl<T> UnwindSafe for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// Returns a free lock around a value.
    pub fn new(value: T) -> SpinLock<T> {
        SpinLock { taken: LockFlag::new(), value: UnsafeCell::new(value) }
    }

    /// Locks the value, and waits while another thread has it. After a panic of a thread that had it, the
    /// value is as that thread left it.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        if !self.taken.take() {
            self.wait();
        }
        SpinLockGuard(self, PhantomData)
    }

    /// Locks the value, unless another thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        self.taken.take().then(|| SpinLockGuard(self, PhantomData))
    }

    /// Returns the value, which no other thread can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0_u32;
        loop {
            if !self.taken.is_probably_locked() && self.taken.take() {
                return;
            }
            spins = spins.saturating_add(1);
            match spins {
                ..SPINS => std::hint::spin_loop(),
                SPINS.. if spins < SPINS + YIELDS => outside::idle(),
                _ => outside::sleep(SLEEP),
            }
        }
    }
}

/// The value of a lock that is taken until this guard is dropped. Threads may share and pass it as they may
/// the value.
#[derive(Debug)]
pub struct SpinLockGuard<'a, T>(&'a SpinLock<T>, PhantomData<&'a mut T>);

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has taken the lock, and the value is borrowed no longer than this.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and this is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.release();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let sum = SpinLock::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let (first, second) = &mut *sum.lock();
                        *first += 1;
                        assert_eq!(*first, *second + 1);
                        *second += 1;
                    }
                });
            }
        });
        assert_eq!(*sum.lock(), (40_000, 40_000));
    }

    #[test]
    fn a_thread_that_keeps_it_for_long_is_waited_for() {
        let (value, asks) = (SpinLock::new(0), LockFlag::<AtomicU64>::new());
        std::thread::scope(|scope| {
            let mut held = value.lock();
            let other = scope.spawn(|| {
                asks.take();
                *value.lock()
            });
            // The other thread needs this time to try in vain, to yield, and to sleep.
            let mut left = 1000;
            while left > 0 {
                std::thread::yield_now();
                left -= u32::from(asks.is_probably_locked());
            }
            *held = 7;
            drop(held);
            assert_eq!(other.join().unwrap(), 7);
        });
    }

    #[test]
    fn a_panic_releases_it() {
        let mut value = SpinLock::new(1);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            *value.lock() = 2;
            let _held = value.try_lock().expect("no one has it");
            assert!(value.try_lock().is_none());
            panic!("contained on purpose");
        }));
        assert!(outcome.is_err());
        assert_eq!(*value.lock(), 2);
        assert_eq!(*value.get_mut(), 2);
    }
}

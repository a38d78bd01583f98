//! A lock for what is done in some hundred instructions, which costs one exchange.
//!
//! The standard library's costs two: its release must find out whether a thread sleeps. An exchange takes as
//! long as twenty other instructions, which is felt where each message takes locks. This one wakes no thread:
//! who finds it taken looks again, lets others run, and at last sleeps a little, so that a holder of lower
//! priority goes on. `brief_lock_model.rs` runs it in every order that the memory model has.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::outside;
use crate::word::Word;

/// Looks before other threads get the processor: the holder runs on another one.
const LOOKS: u32 = 64;
/// Times that other threads get the processor before this one sleeps.
const YIELDS: u32 = 64;
/// How long it sleeps then.
const SLEEP: Duration = Duration::from_micros(50);

/// Whether a lock is taken.
#[derive(Debug)]
pub struct Taken<W>(W);

impl<W: Word> Taken<W> {
    /// It is free.
    pub fn new() -> Taken<W> {
        Taken(W::new(0))
    }

    /// Takes it, and sees what was done before it was released last. False: another thread has it.
    #[inline]
    pub fn take(&self) -> bool {
        self.0.swap(1, Ordering::Acquire) == 0
    }

    /// Whether another thread seems to have it.
    #[inline]
    pub fn seems_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Releases it.
    #[inline]
    pub fn release(&self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<W: Word> Default for Taken<W> {
    fn default() -> Taken<W> {
        Taken::new()
    }
}

/// A value that one thread at a time uses.
#[derive(Debug)]
pub struct BriefLock<T> {
    taken: Taken<AtomicU64>,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has taken the lock gets to the value, and all that it did with it happened
// before another one takes it.
unsafe impl<T: Send> Sync for BriefLock<T> {}

// As the standard library's: what a panic left is for the users of the value to think of.
impl<T> RefUnwindSafe for BriefLock<T> {}
impl<T> UnwindSafe for BriefLock<T> {}

impl<T> BriefLock<T> {
    /// A lock that is free.
    pub fn new(value: T) -> BriefLock<T> {
        BriefLock { taken: Taken::new(), value: UnsafeCell::new(value) }
    }

    /// The value, when no other thread has it. After a panic of a thread that had it, it is as that left it.
    #[inline]
    pub fn lock(&self) -> Brief<'_, T> {
        if !self.taken.take() {
            self.wait();
        }
        Brief(self, PhantomData)
    }

    /// The value, unless another thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Brief<'_, T>> {
        self.taken.take().then(|| Brief(self, PhantomData))
    }

    /// The value, which no other thread can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0_u32;
        loop {
            if !self.taken.seems_taken() && self.taken.take() {
                return;
            }
            looks = looks.saturating_add(1);
            match looks {
                ..LOOKS => std::hint::spin_loop(),
                LOOKS.. if looks < LOOKS + YIELDS => outside::idle(),
                _ => outside::sleep(SLEEP),
            }
        }
    }
}

/// The value of a lock that is taken until this is dropped. Threads may share and pass it as they may the
/// value.
#[derive(Debug)]
pub struct Brief<'a, T>(&'a BriefLock<T>, PhantomData<&'a mut T>);

impl<T> Deref for Brief<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has taken the lock, and the value is borrowed no longer than this.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Brief<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and this is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Brief<'_, T> {
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
        let sum = BriefLock::new((0_u64, 0_u64));
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
        let (value, asks) = (BriefLock::new(0), Taken::<AtomicU64>::new());
        std::thread::scope(|scope| {
            let mut held = value.lock();
            let other = scope.spawn(|| {
                asks.take();
                *value.lock()
            });
            // Until it has looked in vain, has let others run, and sleeps.
            let mut left = 1000;
            while left > 0 {
                std::thread::yield_now();
                left -= u32::from(asks.seems_taken());
            }
            *held = 7;
            drop(held);
            assert_eq!(other.join().unwrap(), 7);
        });
    }

    #[test]
    fn a_panic_releases_it() {
        let mut value = BriefLock::new(1);
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

//! Threads: their cancellation, and values that one thread uses between two of its calls.
//!
//! A value that one thread uses between two calls of the program: `ibv_wr_start` and `ibv_wr_complete`,
//! `ibv_start_poll` and `ibv_end_poll`.
//!
//! The C library ends a cancelled thread by unwinding its stack, from a system call or, if the program has
//! chosen so, from any instruction. Such unwinding must not meet a frame of Rust that owns something or that
//! catches panics: the process would be aborted, or a lock stay locked. So a thread inside this library
//! cannot be cancelled ([`pumice_device::outside::system_call`]), except between the attempts of a call that
//! waits ([`blocking`]): the remaining frames then own nothing.
//!
//! The data path has no such guard around its whole, which would cost more than the rest of a poll: its
//! system calls are no cancellation points.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pumice_device::outside;

use super::Errno;

/// Longest time of an attempt before the call checks whether its thread was cancelled.
const SLICE: Duration = Duration::from_millis(100);
/// The value of `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

/// Result of an attempt in whose time slice no event came. The call checks whether its thread was cancelled,
/// and tries again.
pub(crate) const RESTART: Errno = Errno(512);

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// A call that waits, of which this thread makes an attempt.
#[derive(Clone, Copy)]
struct BlockingCall {
    /// Time at which it began to measure its duration.
    begun: Option<Instant>,
    /// Time at which this attempt has to end.
    until: Option<Instant>,
    /// True if it is not the first attempt.
    repeated: bool,
}

thread_local! {
    static BLOCKING_CALL: Cell<Option<BlockingCall>> = const { Cell::new(None) };
}

fn call() -> Option<BlockingCall> {
    // A thread that is being torn down has no such variable any more, and cannot be cancelled any more.
    BLOCKING_CALL.try_with(Cell::get).unwrap_or(None)
}

fn set_call(call: Option<BlockingCall>) {
    let _ = BLOCKING_CALL.try_with(|cell| cell.set(call));
}

/// Returns the time at which the call that this thread is in began; the current time if the call makes only
/// one attempt.
pub(crate) fn begun() -> Instant {
    let Some(mut known) = call() else { return outside::now() };
    let begun = *known.begun.get_or_insert_with(outside::now);
    set_call(Some(known));
    begun
}

/// Reports whether this thread repeats an attempt of a call.
pub(crate) fn is_repeated() -> bool {
    call().is_some_and(|call| call.repeated)
}

/// Returns the time until which this attempt may wait; it then ends with [`RESTART`]. `None` means without
/// limit.
pub(crate) fn attempt_ends() -> Option<Instant> {
    let mut known = call()?;
    let until = *known.until.get_or_insert_with(|| outside::now() + SLICE);
    set_call(Some(known));
    Some(until)
}

/// Returns the earlier of two times, of which either may be never.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Makes attempts until one has another result than `again`. Before each attempt the thread may be cancelled.
///
/// **Invariant**: the frames of this function and of its callers, up to the program's, own nothing, and are
/// of "C-unwind".
#[inline(always)]
pub(crate) fn blocking<T: Copy + PartialEq, F: FnMut() -> T>(again: T, mut attempt: F) -> T {
    const { assert!(!std::mem::needs_drop::<F>(), "what the closure owns would be lost with the thread") };
    // SAFETY: the function has no argument.
    unsafe { pthread_testcancel() };
    let mut before = 0;
    // SAFETY: the pointer is to a live variable.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    // A call of this library may be part of another call.
    let outer = call();
    let begun = outer.and_then(|outer| outer.begun);
    let mut own = BlockingCall { begun, until: None, repeated: false };
    loop {
        set_call(Some(own));
        let outcome = attempt();
        if outcome != again {
            set_call(outer);
            // SAFETY: the pointer is to a live variable, as before. A program that allows cancellation
            // anywhere is cancelled here.
            unsafe { pthread_setcancelstate(before, &mut 0) };
            return outcome;
        }
        own = BlockingCall { begun: call().and_then(|call| call.begun), until: None, repeated: true };
        set_call(outer);
        // SAFETY: as before.
        unsafe {
            pthread_setcancelstate(before, &mut 0);
            pthread_testcancel();
            pthread_setcancelstate(DISABLE, &mut 0);
        }
    }
}

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
    fn attempts_end_with_their_slices_and_the_call_keeps_its_begin() {
        assert_eq!(attempt_ends(), None);
        let mut first = None;
        let mut ends = Vec::new();
        let ends = &mut ends;
        let attempts = blocking(0, || {
            let beginning = *first.get_or_insert_with(begun);
            assert_eq!(begun(), beginning);
            let end = attempt_ends().unwrap();
            assert_eq!(attempt_ends(), Some(end));
            ends.push(end);
            // An inner call has times of its own, and leaves those of the outer call unchanged.
            assert_eq!(blocking(1, || 2), 2);
            assert_eq!((attempt_ends(), begun()), (Some(end), beginning));
            if ends.len() < 3 { 0 } else { ends.len() }
        });
        assert_eq!(attempts, 3);
        assert!(ends.is_sorted());
        assert_eq!(attempt_ends(), None);
    }

    #[test]
    fn never_is_later_than_any_time() {
        let now = Instant::now();
        assert_eq!(earlier(None, None), None);
        assert_eq!(earlier(Some(now), None), Some(now));
        assert_eq!(earlier(Some(now + SLICE), Some(now)), Some(now));
    }

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

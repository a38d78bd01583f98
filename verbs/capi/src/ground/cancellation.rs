//! Threads that are cancelled: pthread_cancel(3).
//!
//! The C library ends a cancelled thread by unwinding its stack, from a system call or, if the program has
//! chosen so, from anywhere. Such unwinding must not meet a frame of Rust that owns something or that catches
//! panics: the process would be aborted, or a lock stay locked. So a thread that is inside of this library
//! cannot be cancelled ([`pumice_device::outside::cancellation`]), except between the attempts of a call that
//! waits ([`blocking`]): the frames that are left then own nothing.
//!
//! The data path has no such guard around all of it, which would cost more than the rest of a poll: its
//! system calls are no cancellation points.

use std::cell::Cell;
use std::ffi::c_int;
use std::time::{Duration, Instant};

use pumice_device::outside;

use crate::ground::errno::Errno;

/// How long a wait lasts before the call looks whether its thread was cancelled.
const SLICE: Duration = Duration::from_millis(100);
/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

/// Of an attempt: nothing has come within its slice. The call looks whether its thread was cancelled, and
/// tries again.
pub(crate) const RESTART: Errno = Errno(512);

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// A call that waits, of which this thread makes an attempt.
#[derive(Clone, Copy)]
struct Call {
    /// When it began to count its time.
    begun: Option<Instant>,
    /// When this attempt has to end.
    until: Option<Instant>,
    /// It is not the first attempt.
    repeated: bool,
}

thread_local! {
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
}

fn call() -> Option<Call> {
    // A thread that is being torn down has no such variable any more, and is not cancelled any more either.
    CALL.try_with(Cell::get).unwrap_or(None)
}

fn note(call: Option<Call>) {
    let _ = CALL.try_with(|cell| cell.set(call));
}

/// When the call that this thread is in began; now, if it is in none that makes several attempts.
pub(crate) fn begun() -> Instant {
    let Some(mut known) = call() else { return outside::now() };
    let begun = *known.begun.get_or_insert_with(outside::now);
    note(Some(known));
    begun
}

/// Whether this thread makes an attempt of a call again.
pub(crate) fn is_repeated() -> bool {
    call().is_some_and(|call| call.repeated)
}

/// Until when this attempt may wait at most; then it ends with [`RESTART`]. None: as long as it likes.
pub(crate) fn attempt_ends() -> Option<Instant> {
    let mut known = call()?;
    let until = *known.until.get_or_insert_with(|| outside::now() + SLICE);
    note(Some(known));
    Some(until)
}

/// The earlier of two times, of which either may be never.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Makes attempts until one has another outcome than `again`. Before each the thread may be cancelled.
///
/// **Invariant**: the frames of this and of its callers, up to the program's, own nothing, and are of
/// "C-unwind".
#[inline(always)]
pub(crate) fn blocking<T: Copy + PartialEq, F: FnMut() -> T>(again: T, mut attempt: F) -> T {
    const { assert!(!std::mem::needs_drop::<F>(), "what the closure owns would be lost with the thread") };
    // SAFETY: no argument.
    unsafe { pthread_testcancel() };
    let mut before = 0;
    // SAFETY: a live variable.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    // A call of this library may be part of another.
    let outer = call();
    let begun = outer.and_then(|outer| outer.begun);
    let mut own = Call { begun, until: None, repeated: false };
    loop {
        note(Some(own));
        let outcome = attempt();
        if outcome != again {
            note(outer);
            // SAFETY: as before. A program that wants to be cancelled anywhere is cancelled here.
            unsafe { pthread_setcancelstate(before, &mut 0) };
            return outcome;
        }
        own = Call { begun: call().and_then(|call| call.begun), until: None, repeated: true };
        note(outer);
        // SAFETY: as before.
        unsafe {
            pthread_setcancelstate(before, &mut 0);
            pthread_testcancel();
            pthread_setcancelstate(DISABLE, &mut 0);
        }
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
            let begun = *first.get_or_insert_with(begun);
            assert_eq!(super::begun(), begun);
            let end = attempt_ends().unwrap();
            assert_eq!(attempt_ends(), Some(end));
            ends.push(end);
            // A call within is on its own, and leaves the one around it as it was.
            assert_eq!(blocking(1, || 2), 2);
            assert_eq!((attempt_ends(), super::begun()), (Some(end), begun));
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
}

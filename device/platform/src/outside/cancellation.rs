//! Threads that are cancelled: pthread_cancel(3).
//!
//! The C library ends a cancelled thread at its next cancellation point, which nearly every system call by
//! the C library's functions is, by unwinding its stack. Locks that the thread holds would stay locked, and a
//! frame of Rust that catches panics aborts the process. So this crate makes its frequent system calls
//! through `crate::outside::system_call`, and the others during the life of an [`Uncancelled`].

use std::ffi::c_int;

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// A guard that prevents the cancellation of its thread while it lives. (For a thread of the type
/// PTHREAD_CANCEL_ASYNCHRONOUS its end is a cancellation point.)
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// Disables cancellation of this thread.
    pub fn begin() -> Uncancelled {
        let mut before = 0;
        // SAFETY: a live variable.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that it was; the old one is not wanted.
        unsafe { pthread_setcancelstate(self.before, &mut 0) };
    }
}

/// Makes a call without cancellation of the thread.
#[inline]
pub fn without_cancellation<T>(call: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> c_int {
        let mut state = -1;
        // SAFETY: a live variable; the state is put back.
        unsafe {
            pthread_setcancelstate(DISABLE, &mut state);
            pthread_setcancelstate(state, &mut 0);
        }
        state
    }

    #[test]
    fn the_state_is_as_before_when_the_last_one_is_gone() {
        let outer = Uncancelled::begin();
        assert_eq!(state(), DISABLE);
        assert_eq!(without_cancellation(state), DISABLE);
        assert_eq!(state(), DISABLE, "the outer one lives");
        drop(outer);
        assert_eq!(state(), 0);
    }
}

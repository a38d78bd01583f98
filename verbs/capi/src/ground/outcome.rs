//! How calls end: errno conventions, and the wall that panics do not pass.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice_device::system::cancellation::Uncancelled;

use crate::ground::cancellation::RESTART;
use crate::ground::errno::{Errno, set_errno};
use crate::ground::unlogged;

/// Runs `call` behind the wall: a panic becomes EIO. The panic itself was reported by its hook.
#[inline]
fn walled<T, C: FnOnce() -> Result<T, Errno>>(call: C) -> Result<T, Errno> {
    // What a panic leaves half done is behind the locks of the device, which are taken over.
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::EIO)));
    if let Err(errno) = &outcome {
        unlogged::tell::<C>(*errno);
    }
    outcome
}

/// As [`walled`]; the thread is not cancelled meanwhile.
fn contained<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _whole = Uncancelled::begin();
    walled(call)
}

/// Conventions for the data path, which makes no system call that is a cancellation point.
pub(crate) mod data_path {
    use super::{Errno, c_int, set_errno, walled};

    /// As [`super::status`].
    #[inline]
    pub(crate) fn status(call: impl FnOnce() -> Result<(), Errno>) -> c_int {
        match walled(call) {
            Ok(()) => 0,
            Err(Errno(errno)) => {
                set_errno(errno);
                errno
            }
        }
    }

    /// As [`super::negative`].
    #[inline]
    pub(crate) fn negative(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
        walled(call).unwrap_or_else(|Errno(errno)| {
            set_errno(errno);
            -errno
        })
    }

    /// As [`super::value`].
    #[inline]
    pub(crate) fn value<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
        walled(|| Ok(call())).unwrap_or(otherwise)
    }
}

/// For attempts of calls that wait and return a number, or -1 and errno: [`TRY_AGAIN`] if the attempt ended
/// with its slice.
pub(crate) fn attempt<T: From<i8>>(call: impl FnOnce() -> Result<T, Errno>) -> T {
    contained(call).unwrap_or_else(|errno| {
        if errno == RESTART {
            return T::from(TRY_AGAIN);
        }
        set_errno(errno.0);
        T::from(-1)
    })
}

/// See [`attempt`]. No call returns it.
pub(crate) const TRY_AGAIN: i8 = -2;

/// For calls that return 0 or a positive errno.
#[inline]
pub(crate) fn status(call: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match contained(call) {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            errno
        }
    }
}

/// For calls that return a pointer, or NULL and errno.
pub(crate) fn pointer<T>(call: impl FnOnce() -> Result<*mut T, Errno>) -> *mut T {
    contained(call).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

/// For calls that return a number, or -1 and errno.
#[inline]
pub(crate) fn number(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    contained(call).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -1
    })
}

/// For calls that return a number of bytes, or -1 and errno.
#[inline]
pub(crate) fn count(call: impl FnOnce() -> Result<isize, Errno>) -> isize {
    contained(call).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -1
    })
}

/// For calls that return a number, or a negative errno.
#[inline]
pub(crate) fn negative(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    contained(call).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -errno
    })
}

/// For calls that cannot fail; a panic gives `otherwise`.
#[inline]
pub(crate) fn value<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    contained(|| Ok(call())).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::errno::{INVALID, NOT_SUPPORTED, errno};

    #[test]
    fn each_convention_reports_its_errno() {
        assert_eq!(status(|| Err(INVALID)), libc::EINVAL);
        assert_eq!(status(|| Ok(())), 0);
        assert!(pointer::<u8>(|| Err(NOT_SUPPORTED)).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!((number(|| Err(INVALID)), errno()), (-1, libc::EINVAL));
        assert_eq!((negative(|| Err(NOT_SUPPORTED)), errno()), (-libc::EOPNOTSUPP, libc::EOPNOTSUPP));
    }

    #[test]
    fn a_panic_is_an_io_error() {
        assert_eq!(status(|| panic!("contained on purpose")), libc::EIO);
        assert_eq!(value(7, || panic!("contained on purpose")), 7);
    }
}

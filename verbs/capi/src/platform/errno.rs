//! Errno values, in which this library's calls report errors.

use std::ffi::c_int;

/// An error of a call: a positive errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// The error of a wrong argument.
pub(crate) const INVALID: Errno = Errno(libc::EINVAL);
/// The error of an operation that the device does not have.
pub(crate) const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);

/// Sets this thread's errno.
#[inline]
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

//! Errno, as this library's calls say it.

use std::ffi::c_int;

/// A refusal: a positive errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// An argument is wrong.
pub(crate) const INVALID: Errno = Errno(libc::EINVAL);
/// The device does not do that.
pub(crate) const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);

/// Sets this thread's errno.
#[inline]
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

/// This thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

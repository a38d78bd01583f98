//! How calls end: errno conventions, and the wall that panics do not pass.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice_device::error::ResourceError;
use pumice_device::hca::HcaError;
use pumice_device::settings::SettingError;

use crate::explanation::{complain, explain};

/// A refusal: a positive errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// An argument is wrong.
pub(crate) const INVALID: Errno = Errno(libc::EINVAL);
/// The device does not do that.
pub(crate) const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);

impl Errno {
    /// A refusal with its reason for the operator.
    pub(crate) fn because(self, reason: impl FnOnce() -> String) -> Errno {
        explain(reason);
        self
    }
}

impl From<HcaError> for Errno {
    #[cold]
    fn from(error: HcaError) -> Errno {
        explain(|| error.to_string());
        Errno(error.errno())
    }
}

impl From<ResourceError> for Errno {
    #[cold]
    fn from(error: ResourceError) -> Errno {
        explain(|| error.to_string());
        Errno(error.errno())
    }
}

impl From<SettingError> for Errno {
    #[cold]
    fn from(error: SettingError) -> Errno {
        complain(&error.to_string());
        Errno(error.errno)
    }
}

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

/// Runs `call` behind the wall: a panic becomes EIO. The panic itself was reported by its hook.
#[inline]
fn contained<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // What a panic leaves half done is behind the locks of the device, which are taken over.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::EIO)))
}

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

//! The original functions of the C library, which functions of the same names here replace.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next object that has it.
pub(crate) struct Original {
    name: &'static CStr,
    /// Address of the function; null until it is known.
    address: AtomicPtr<c_void>,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns its address; null, with errno set, if this C library does not have it.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// Resolves the address. Two threads may do this at once, because they find the same one.
    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            set_errno(libc::ENOSYS);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

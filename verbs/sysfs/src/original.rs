//! The C library's own functions, behind ours of the same names.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the next object that has it.
pub(crate) struct Original {
    name: &'static CStr,
    /// Null until it is known.
    address: AtomicPtr<c_void>,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address; null, with errno set, if this C library does not have it.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// Two threads may do this at once: they find the same.
    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: a name that ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            set_errno(libc::ENOSYS);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// This thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

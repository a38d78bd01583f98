//! The next object's functions, which this object's functions of the same names hide.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A function of the next object that defines it.
pub(crate) struct Original {
    name: &'static CStr,
    /// Address of the function; null until it is known.
    address: AtomicPtr<c_void>,
    is_sought: AtomicBool,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(null_mut()), is_sought: AtomicBool::new(false) }
    }

    /// Returns its address; null during the search for it, which may call it, and if there is none.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// Returns its address, also while another thread searches for it; null if there is none. For functions
    /// that the search does not call.
    #[inline]
    pub(crate) fn certain_address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: a name that ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        if self.is_sought.swap(true, Ordering::Acquire) {
            return self.address.load(Ordering::Relaxed);
        }
        let found = self.look_up();
        self.is_sought.store(false, Ordering::Release);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_names() {
        let (known, unknown) = (Original::new(c"getpid"), Original::new(c"no_such_function_at_all"));
        assert!(!known.address().is_null() && known.address() == known.address());
        assert!(unknown.address().is_null() && unknown.address().is_null());
    }
}

//! The preload libpumice_check.so, if it is loaded (`verbs/checkpreload`).

use std::ffi::c_void;

/// Returns the address of its function that registers callbacks; null if it is not loaded.
pub(crate) fn function() -> *const c_void {
    // SAFETY: a name that ends with NUL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_check_watches".as_ptr()) }
}

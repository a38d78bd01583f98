//! The preload libpumice_check.so, if it is loaded (`verbs/checkpreload`).

use std::ffi::c_void;
use std::mem::transmute;

use pumice_device::outside;

/// Returns the address of its function that registers callbacks; null if it is not loaded.
pub(crate) fn function() -> *const c_void {
    // SAFETY: a name that ends with NUL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_check_watches".as_ptr()) }
}

/// Makes each lock of the program a point of the world that it runs in, if the preload is loaded.
pub(crate) fn watch_locks() {
    // SAFETY: a name that ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_check_watches_locks".as_ptr()) };
    if !function.is_null() {
        // SAFETY: the function of that name has this type.
        let register: extern "C" fn(extern "C" fn()) = unsafe { transmute(function) };
        register(outside::world::lock_point);
    }
}

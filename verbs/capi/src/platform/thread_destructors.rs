//! Registration of destructors of thread-local variables, which glibc allocates.
//!
//! glibc ends the process if it has no memory for such a registration. This library replaces the function by
//! one that first checks for memory: without memory the destructor is not registered, and the thread-local
//! variable is not destroyed. The symbol is hidden, so the program and other libraries use glibc's function.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::reserve::malloc_has;

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {note}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {note}"
    };
}
#[cfg(target_arch = "riscv64")]
macro_rules! jump {
    () => {
        "tail {note}"
    };
}

global_asm!(
    ".text",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl, @function",
    "__cxa_thread_atexit_impl:",
    jump!(),
    note = sym note,
);

/// The type of `__cxa_thread_atexit_impl`: a destructor, its argument, and the object that contains it.
type RegisterDestructor = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;

/// Size in bytes of the test allocation. It exceeds a registration and the blocks that malloc caches for a
/// thread, of which calloc takes none.
const TRIAL_BYTES: usize = 2048;

/// Registers `destroy(variable)` for the end of the thread, if there is memory for it.
///
/// # Safety
/// Same as for glibc's function: the call is sound at the end of the thread.
unsafe extern "C" fn note(destroy: *mut c_void, variable: *mut c_void, object: *mut c_void) -> c_int {
    static GLIBC: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    if !malloc_has(TRIAL_BYTES) {
        return libc::ENOMEM;
    }
    let mut of_glibc = GLIBC.load(Ordering::Relaxed);
    if of_glibc.is_null() {
        // SAFETY: the name ends with a zero byte. The lookup starts after this library.
        of_glibc = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__cxa_thread_atexit_impl".as_ptr()) };
        GLIBC.store(of_glibc, Ordering::Relaxed);
    }
    if of_glibc.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the function of that name has this type, and the caller guarantees that the call is sound.
    unsafe { transmute::<*mut c_void, RegisterDestructor>(of_glibc)(destroy, variable, object) }
}

//! Python packages that bundle a libibverbs under a name of its own (`libibverbs-1de1263b.so.1.14.48.0`, as
//! auditwheel makes it). LD_LIBRARY_PATH does not lead them to the device, because nothing loads
//! `libibverbs.so.1`.
//!
//! Such packages are loaded with dlopen(3). Before a process's first dlopen, the library that PUMICE_LIBRARY
//! names is loaded with global visibility, so that objects loaded later find its symbols before those of the
//! bundled library. Programs that never call dlopen, such as shells and compilers, do not pay for that.
//!
//! dlopen uses its return address to search the folders that the caller names. So the wrapper jumps to the C
//! library's function instead of calling it.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::{LIBRARY, Original};

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// The C library's `dlopen`.
pub(crate) static ORIGINAL: Original = Original::new(c"dlopen");

/// Loads the device's library, then jumps to the C library's function.
///
/// # Safety
/// The requirements of the C library's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    // The arguments are preserved; the stack is aligned for the call; at the jump the caller's return address
    // is where the caller put it.
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {load}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        load = sym load,
    );
    // The hint is "bti c", on which a jump through x16 may land.
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {load}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        load = sym load,
    );
    #[cfg(target_arch = "riscv64")]
    naked_asm!(
        "addi sp, sp, -32",
        "sd ra, 24(sp)",
        "sd a0, 16(sp)",
        "sd a1, 8(sp)",
        "call {load}",
        "mv t1, a0",
        "ld a1, 8(sp)",
        "ld a0, 16(sp)",
        "ld ra, 24(sp)",
        "addi sp, sp, 32",
        "jr t1",
        load = sym load,
    );
}

/// Loads the device's library, unless that was done or the program asks only for itself. Returns the address
/// at which dlopen continues.
extern "C" fn load(path: *const c_char) -> *const c_void {
    static DONE: AtomicBool = AtomicBool::new(false);
    let original = ORIGINAL.address();
    if original.is_null() {
        return refuse as *const c_void;
    }
    if !path.is_null()
        && !DONE.swap(true, Ordering::Relaxed)
        && let Some(library) = LIBRARY.value()
    {
        // SAFETY: the C library's function of this name has this type; the argument is a C string.
        unsafe {
            let original = transmute::<*mut c_void, Dlopen>(original);
            // If the library cannot be loaded, the program continues without it.
            original(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        }
    }
    original
}

/// Fails, for a C library without dlopen.
extern "C" fn refuse(_path: *const c_char, _flags: c_int) -> *mut c_void {
    null_mut()
}

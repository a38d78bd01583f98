//! The functions that free memory, those that sleep for a time, and those that end the process at once.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use libc::{clockid_t, size_t, timespec};

use crate::hooks::{Original, report_exit, report_freed, report_sleep, request_using};
use crate::locks;

static FREE: Original = Original::new(c"free");
static REALLOC: Original = Original::new(c"realloc");
static MUNMAP: Original = Original::new(c"munmap");
static USLEEP: Original = Original::new(c"usleep");
static NANOSLEEP: Original = Original::new(c"nanosleep");
static CLOCK_NANOSLEEP: Original = Original::new(c"clock_nanosleep");
static USABLE: Original = Original::new(c"malloc_usable_size");

/// Numbers by which libpumice.so knows the calls.
const OF_FREE: c_int = 0;
const OF_REALLOC: c_int = 1;
const OF_MUNMAP: c_int = 2;

/// Returns the length of a block in bytes.
fn bytes_of(block: *mut c_void) -> usize {
    let function = USABLE.address();
    if function.is_null() {
        return 1;
    }
    // SAFETY: the function of that name has this type; `block` is of the same allocator, because it is given
    // to that one's `free` or `realloc`.
    let usable: unsafe extern "C" fn(*mut c_void) -> size_t = unsafe { transmute(function) };
    // SAFETY: as above.
    unsafe { usable(block) }
}

/// Replaces free(3).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    let user = request_using(block.addr(), || bytes_of(block));
    if user != 0 {
        report_freed(user, OF_FREE);
    }
    let function = FREE.address();
    // While the search for the function is not finished, a block is leaked instead.
    if !function.is_null() {
        // SAFETY: the function of that name has this type; the caller guarantees the block.
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(function)(block) };
    }
}

/// Replaces realloc(3). A block that grows or shrinks in place stays in use.
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void {
    let function = REALLOC.address();
    if function.is_null() {
        return null_mut();
    }
    let user = request_using(block.addr(), || bytes_of(block));
    let before = block.addr();
    // SAFETY: the function of that name has this type.
    let original: unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void = unsafe { transmute(function) };
    // SAFETY: the caller guarantees the block.
    let moved = unsafe { original(block, bytes) };
    let is_freed = moved.addr() != before && (!moved.is_null() || bytes == 0);
    if user != 0 && is_freed {
        report_freed(user, OF_REALLOC);
    }
    moved
}

/// Replaces munmap(2).
///
/// # Safety
/// The requirements are those of the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, bytes: size_t) -> c_int {
    let user = request_using(address.addr(), || bytes);
    let function = MUNMAP.address();
    if function.is_null() {
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    }
    // SAFETY: the function of that name has this type.
    let original: unsafe extern "C" fn(*mut c_void, size_t) -> c_int = unsafe { transmute(function) };
    // SAFETY: the caller guarantees the mapping.
    let outcome = unsafe { original(address, bytes) };
    if user != 0 && outcome == 0 {
        report_freed(user, OF_MUNMAP);
    }
    outcome
}

/// Replaces usleep(3).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn usleep(us: c_uint) -> c_int {
    report_sleep();
    let function = USLEEP.address();
    if function.is_null() {
        return 0;
    }
    // SAFETY: the function of that name has this type, and takes any number.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn(c_uint) -> c_int>(function)(us) }
}

/// Replaces nanosleep(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    type Function = unsafe extern "C" fn(*const timespec, *mut timespec) -> c_int;
    report_sleep();
    let function = NANOSLEEP.address();
    if function.is_null() {
        return 0;
    }
    // SAFETY: the function of that name has this type; the caller vouches for the pointers.
    unsafe { transmute::<*mut c_void, Function>(function)(time, left) }
}

/// Replaces clock_nanosleep(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    type Function = unsafe extern "C" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
    report_sleep();
    let function = CLOCK_NANOSLEEP.address();
    if function.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the function of that name has this type; the caller vouches for the pointers.
    unsafe { transmute::<*mut c_void, Function>(function)(clock, flags, time, left) }
}

/// Replaces _exit(2): findings are reported before, because pytest-timeout and other runners end a hanging
/// test with it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(status: c_int) -> ! {
    report_exit();
    end(status)
}

/// Replaces _Exit(3), which is the same call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Exit(status: c_int) -> ! {
    report_exit();
    end(status)
}

/// Makes the system call of the C library's function.
fn end(status: c_int) -> ! {
    loop {
        // SAFETY: the call ends all threads of the process, and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Finds the functions before the program begins, so that they need not be searched for later.
extern "C" fn prepare() {
    for original in [&FREE, &REALLOC, &MUNMAP, &USLEEP, &NANOSLEEP, &CLOCK_NANOSLEEP, &USABLE] {
        original.address();
    }
    locks::prepare();
}

/// Function that the loader calls when it has loaded the object.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

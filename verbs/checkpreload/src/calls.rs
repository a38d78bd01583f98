//! The functions that free memory, and those that end the process at once.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use libc::size_t;

use crate::original::Original;
use crate::watch::{ends, tell, user_of};

static FREE: Original = Original::new(c"free");
static REALLOC: Original = Original::new(c"realloc");
static MUNMAP: Original = Original::new(c"munmap");
static USABLE: Original = Original::new(c"malloc_usable_size");

/// As libpumice.so knows the calls.
const OF_FREE: c_int = 0;
const OF_REALLOC: c_int = 1;
const OF_MUNMAP: c_int = 2;

/// Bytes of a block.
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

/// free(3).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(block: *mut c_void) {
    let user = user_of(block.addr(), || bytes_of(block));
    if user != 0 {
        tell(user, OF_FREE);
    }
    let function = FREE.address();
    // While the function is being looked for, a block is rather lost.
    if !function.is_null() {
        // SAFETY: the function of that name has this type; the caller vouches for the block.
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(function)(block) };
    }
}

/// realloc(3). A block that grows or shrinks where it is stays in use.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void {
    let function = REALLOC.address();
    if function.is_null() {
        return null_mut();
    }
    let user = user_of(block.addr(), || bytes_of(block));
    let before = block.addr();
    // SAFETY: the function of that name has this type.
    let original: unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void = unsafe { transmute(function) };
    // SAFETY: the caller vouches for the block.
    let moved = unsafe { original(block, bytes) };
    let is_freed = moved.addr() != before && (!moved.is_null() || bytes == 0);
    if user != 0 && is_freed {
        tell(user, OF_REALLOC);
    }
    moved
}

/// munmap(2).
///
/// # Safety
/// That of the system call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, bytes: size_t) -> c_int {
    let user = user_of(address.addr(), || bytes);
    let function = MUNMAP.address();
    if function.is_null() {
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    }
    // SAFETY: the function of that name has this type.
    let original: unsafe extern "C" fn(*mut c_void, size_t) -> c_int = unsafe { transmute(function) };
    // SAFETY: the caller vouches for the mapping.
    let outcome = unsafe { original(address, bytes) };
    if user != 0 && outcome == 0 {
        tell(user, OF_MUNMAP);
    }
    outcome
}

/// _exit(2): what was found is told before, as pytest-timeout and other runners end a test that hangs by it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _exit(status: c_int) -> ! {
    ends();
    end(status)
}

/// _Exit(3), which is the same.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn _Exit(status: c_int) -> ! {
    ends();
    end(status)
}

/// The system call that the C library's function makes.
fn end(status: c_int) -> ! {
    loop {
        // SAFETY: it ends all threads of the process, and does not come back.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Before the program begins: what is found now need not be looked up later.
extern "C" fn prepare() {
    for original in [&FREE, &REALLOC, &MUNMAP, &USABLE] {
        original.address();
    }
}

/// What the loader calls when it has loaded the object.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

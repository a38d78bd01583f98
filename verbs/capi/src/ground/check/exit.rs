//! The end of the process: what is left is told, after the destructors of the program and of its libraries.

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use pumice_device::outside::lineage::borrows_memory;

use super::state::{CHECKER, is_on};
use super::{killed, writer};

/// The exit status, once it is known.
static STATUS: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn note_status(status: c_int, _argument: *mut c_void) {
    STATUS.store(status & 0xff, Ordering::Relaxed);
}

/// From now on the exit status is noted.
pub(super) fn watch() {
    // A fork child has it from its parent.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the object is never unmapped (it is linked with -z nodelete).
        unsafe { on_exit(note_status, ptr::null_mut()) };
    }
}

/// Runs after the functions of atexit(3) and the destructors of all that depends on this library.
extern "C" fn last() {
    if CHECKER.if_made().is_none() || !is_on() {
        return;
    }
    let is_well = STATUS.load(Ordering::Relaxed) == 0;
    // A panic, which its hook has reported, must not reach the loader.
    let _ = catch_unwind(|| writer::end(is_well));
}

/// The program calls _exit(2): nothing runs after this.
pub(super) extern "C" fn at_once() {
    // A child of vfork has the checker of its parent, which goes on.
    if borrows_memory() || CHECKER.if_made().is_none() || !is_on() {
        return;
    }
    // As above.
    let _ = catch_unwind(writer::end_at_once);
    killed::say_last();
}

// SAFETY: the loader calls what is in this section when the process exits, with arguments that a C function
// without parameters does not look at.
#[used]
#[unsafe(link_section = ".fini_array")]
static LAST: extern "C" fn() = last;

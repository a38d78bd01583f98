//! The end of the process: remaining findings are reported after the destructors of the program and of its
//! libraries.

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use pumice_device::outside::fork_generation::shares_parent_memory;

use super::{killed, writer};
use crate::call_sites::state::{CHECKER, is_on};

/// Exit status, once it is known; -1 before.
static STATUS: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn record_status(status: c_int, _argument: *mut c_void) {
    STATUS.store(status & 0xff, Ordering::Relaxed);
}

/// Registers the function that records the exit status.
pub(super) fn watch() {
    // A forked child inherits the registration from its parent.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the object is never unmapped (it is linked with -z nodelete).
        unsafe { on_exit(record_status, ptr::null_mut()) };
    }
}

/// Writes the findings after the functions of atexit(3) and the destructors of all that depends on this
/// library.
extern "C" fn last() {
    if CHECKER.get_if_created().is_none() || !is_on() {
        return;
    }
    let is_well = STATUS.load(Ordering::Relaxed) == 0;
    // A panic, which its hook has reported, must not reach the loader.
    let _ = catch_unwind(|| writer::end(is_well));
}

/// Writes the findings when the program calls _exit(2): no code runs after this.
pub(super) extern "C" fn at_once() {
    // A child of vfork shares the checker of its parent, which continues.
    if shares_parent_memory() || CHECKER.get_if_created().is_none() || !is_on() {
        return;
    }
    // A panic must not reach the loader, as above.
    let _ = catch_unwind(writer::end_at_once);
    killed::write_last_message();
}

// SAFETY: the loader calls the functions in this section when the process exits, with arguments that a C
// function without parameters does not read.
#[used]
#[unsafe(link_section = ".fini_array")]
static LAST: extern "C" fn() = last;

//! connect(2) of TCP, as the small preload tells of it (`verbs/sysfs`): a point of the order of a process.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use pumice_device::ground::order;

/// What the preload gets: it has the same structure, in `verbs/sysfs/src/connections.rs`.
#[repr(C)]
struct ConnectionHooks {
    enters: extern "C" fn(),
    leaves: extern "C" fn(c_int),
}

static WATCH: ConnectionHooks = ConnectionHooks { enters, leaves };

/// From now on the preload tells of connections, if it is loaded.
pub(crate) fn watch() {
    // SAFETY: a name that ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_connections_told_to".as_ptr()) };
    if function.is_null() {
        return;
    }
    // SAFETY: the function of that name has this type, and the structure lives as long as the process.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*const ConnectionHooks)>(function)(&raw const WATCH)
    };
}

extern "C" fn enters() {
    if let Some(order) = order::of_process() {
        order.begins_to_connect();
    }
}

extern "C" fn leaves(is_made: c_int) {
    if let Some(order) = order::of_process() {
        order.has_connected(is_made != 0);
    }
}

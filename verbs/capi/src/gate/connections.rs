//! Notifications of connect(2) on TCP by the small preload (`verbs/sysfs`): each is a point in the order of a
//! process.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use pumice_device::platform::order;

/// Callbacks for the preload, which has the same structure in `verbs/sysfs/src/connections.rs`.
#[repr(C)]
struct ConnectionHooks {
    before_connect: extern "C" fn(),
    after_connect: extern "C" fn(c_int),
}

static HOOKS: ConnectionHooks = ConnectionHooks { before_connect, after_connect };

/// Registers the callbacks with the preload, if it is loaded.
pub(crate) fn watch() {
    // SAFETY: a name that ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_connections_told_to".as_ptr()) };
    if function.is_null() {
        return;
    }
    // SAFETY: the function of that name has this type, and the structure lives as long as the process.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*const ConnectionHooks)>(function)(&raw const HOOKS)
    };
}

extern "C" fn before_connect() {
    if let Some(order) = order::of_process() {
        order.begins_to_connect();
    }
}

extern "C" fn after_connect(is_made: c_int) {
    if let Some(order) = order::of_process() {
        order.has_connected(is_made != 0);
    }
}

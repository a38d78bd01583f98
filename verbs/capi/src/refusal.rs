//! What symbols and slots answer that nothing here serves. The arguments do not matter: in the C
//! calling conventions of Linux a callee may ignore any number of them.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::explanation::explain;
use crate::outcome::set_errno;

/// A verb that returns an errno: EOPNOTSUPP.
pub(crate) extern "C" fn int() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// A verb that returns an object: NULL and EOPNOTSUPP.
pub(crate) extern "C" fn ptr() -> *mut c_void {
    set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

/// A call of the connection manager or of rsockets: -1 and ENOSYS.
pub(crate) extern "C" fn neg() -> isize {
    explain(no_connection_manager);
    set_errno(libc::ENOSYS);
    -1
}

/// A call of the connection manager that returns an object: NULL and ENOSYS.
pub(crate) extern "C" fn null() -> *mut c_void {
    explain(no_connection_manager);
    set_errno(libc::ENOSYS);
    ptr::null_mut()
}

fn no_connection_manager() -> String {
    "the connection manager (rdma_cm) and rsockets are not there yet; programs that exchange addresses \
     themselves (ibv_rc_pingpong, perftest without -R, qperf without -cm) work"
        .to_owned()
}

/// A question that is answered no, or a call that does nothing.
pub(crate) extern "C" fn zero() -> usize {
    0
}

//! What symbols and slots answer that nothing here serves. The arguments do not matter: in the C
//! calling conventions of Linux a callee may ignore any number of them.

use std::ffi::{c_int, c_void};
use std::ptr;

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

/// A question that is answered no, or a call that does nothing.
pub(crate) extern "C" fn zero() -> usize {
    0
}

//! What symbols and slots answer that nothing here serves. The arguments do not matter: in the C calling
//! conventions of Linux a callee may ignore any number of them. The answer says which call it was, and
//! follows the convention that the call's manual page gives: a wrong one would be taken for success, or for a
//! descriptor.

use std::ffi::{c_int, c_void};

use crate::ground::errno::NOT_SUPPORTED;
use crate::ground::log::log_at;
use crate::ground::outcome::{negative, number, pointer, status};
use crate::ground::vendor_calls;
use pumice_device::settings::Log;

/// Why a call was refused. What programs ask of every device to find out whose it is, is answered no, without
/// a word.
fn because(call: &str) {
    let level = if vendor_calls::asks(call) { Log::Info } else { Log::Warn };
    log_at(level, || {
        let of_vendor = vendor_calls::sentence(call);
        of_vendor
            .unwrap_or_else(|| format!("{call} is refused with EOPNOTSUPP: this device does not have it"))
    });
}

/// A call that returns an errno.
pub(crate) fn int(call: &str) -> c_int {
    status(|| {
        because(call);
        Err(NOT_SUPPORTED)
    })
}

/// A call that returns -1 and errno, such as one that returns a descriptor.
pub(crate) fn minus(call: &str) -> c_int {
    number(|| {
        because(call);
        Err(NOT_SUPPORTED)
    })
}

/// A call that returns a number, or a negative errno.
pub(crate) fn neg(call: &str) -> c_int {
    negative(|| {
        because(call);
        Err(NOT_SUPPORTED)
    })
}

/// A call that returns an object, or NULL and errno.
pub(crate) fn ptr(call: &str) -> *mut c_void {
    pointer(|| {
        because(call);
        Err(NOT_SUPPORTED)
    })
}

/// A question that is answered no, or a call that does nothing.
pub(crate) const fn zero(_call: &str) -> usize {
    0
}

/// A function of C that refuses, for an entry of a table: its convention, and the call that leads there.
macro_rules! refused {
    (int, $call:literal) => {{
        extern "C" fn refuse() -> std::ffi::c_int {
            crate::ground::unserved::int($call)
        }
        crate::ground::abi::operation!(refuse)
    }};
    (ptr, $call:literal) => {{
        extern "C" fn refuse() -> *mut std::ffi::c_void {
            crate::ground::unserved::ptr($call)
        }
        crate::ground::abi::operation!(refuse)
    }};
}
pub(crate) use refused;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::errno::errno;

    #[test]
    fn each_convention_says_that_it_is_not_supported() {
        assert_eq!(int("ibv_destroy_counters"), libc::EOPNOTSUPP);
        assert_eq!((minus("ibv_dm_export_dmabuf_fd"), errno()), (-1, libc::EOPNOTSUPP));
        assert_eq!(neg("efadv_get_max_rq_depth"), -libc::EOPNOTSUPP);
        assert!(ptr("ibv_create_counters").is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

//! What symbols and slots answer that nothing here serves. The arguments do not matter: in the C calling
//! conventions of Linux a callee may ignore any number of them. The answer says which call it was, and
//! follows the convention that the call's manual page gives: a wrong one would be taken for success, or for a
//! descriptor.

use std::ffi::{c_int, c_void};
use std::ptr;

use pumice_calls::Call;
use pumice_device::settings::Log;

use crate::ground::log::log_at;
use crate::ground::outcome::unserved;
use crate::ground::settings::known_profile;
use crate::ground::vendor_calls;

/// Why a call was refused; `version` follows its name, as in "@IBVERBS_1.0". What programs ask of every
/// device to find out whose it is, is answered no, without a word.
fn because(call: Call, version: &str) -> c_int {
    unserved(|| {
        let level = if call.row().is_question { Log::Info } else { Log::Warn };
        log_at(level, || {
            vendor_calls::sentence(call, is_of_vendor(call))
                .unwrap_or_else(|| sentence(&format!("{call}{version}")))
        });
    })
}

/// Whether the device looks like one of the vendor whose call this is.
fn is_of_vendor(call: Call) -> bool {
    vendor_calls::vendor_of(call)
        .is_some_and(|vendor| known_profile().is_some_and(|is| is.vendor() == Some(vendor)))
}

fn sentence(what: &str) -> String {
    format!("{what} is refused with EOPNOTSUPP: this device does not have it")
}

/// A call that returns an errno.
pub(crate) fn int(call: Call, version: &str) -> c_int {
    because(call, version)
}

/// A call that returns -1 and errno, such as one that returns a descriptor.
pub(crate) fn minus(call: Call, version: &str) -> c_int {
    because(call, version);
    -1
}

/// A call that returns a number, or a negative errno.
pub(crate) fn negative(call: Call, version: &str) -> c_int {
    -because(call, version)
}

/// A call that returns an object, or NULL and errno.
pub(crate) fn null(call: Call, version: &str) -> *mut c_void {
    because(call, version);
    ptr::null_mut()
}

/// A question that is answered no, or a call that does nothing.
pub(crate) const fn plain(_call: Call, _version: &str) -> usize {
    0
}

/// An entry of a table that is no call.
pub(crate) extern "C" fn entry() -> *mut c_void {
    unserved(|| log_at(Log::Warn, || sentence("ibv_context_ops (an entry that verbs.h does not use)")));
    ptr::null_mut()
}

/// A function of C that refuses a call, for an entry of a table: how the call fails, and its name.
macro_rules! refused {
    (errno, $call:ident) => {{
        extern "C" fn refuse() -> std::ffi::c_int {
            crate::ground::unserved::int(pumice_calls::Call::$call, "")
        }
        const { assert!(matches!(pumice_calls::Call::$call.row().answer, pumice_calls::Answer::Errno)) };
        crate::ground::abi::operation!(refuse)
    }};
    (null, $call:ident) => {{
        extern "C" fn refuse() -> *mut std::ffi::c_void {
            crate::ground::unserved::null(pumice_calls::Call::$call, "")
        }
        const { assert!(matches!(pumice_calls::Call::$call.row().answer, pumice_calls::Answer::Null)) };
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
        assert_eq!(int(Call::ibv_destroy_counters, ""), libc::EOPNOTSUPP);
        assert_eq!((minus(Call::ibv_dm_export_dmabuf_fd, ""), errno()), (-1, libc::EOPNOTSUPP));
        assert_eq!(negative(Call::efadv_get_max_rq_depth, ""), -libc::EOPNOTSUPP);
        assert!(null(Call::ibv_create_counters, "").is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

//! Answers of symbols and slots that are not implemented. The arguments do not matter: in the C calling
//! conventions of Linux a callee may ignore any number of them. The message names the call, and the result
//! follows the convention that the call's manual page gives: a wrong one would be taken for success, or for a
//! descriptor.

use std::ffi::{c_int, c_void};
use std::ptr;

use pumice_calls::Call;
use pumice_device::settings::LogLevel;

use super::unsupported;
use crate::entry::refusals;
use crate::log::log_at;
use crate::log::settings::known_profile;

/// Refuses a call with a message; `version` follows its name, as in "@IBVERBS_1.0". A question that programs
/// ask of every device, to find out its vendor, is answered no without a warning.
fn because(call: Call, version: &str) -> c_int {
    unsupported(|| {
        let level = if call.row().is_feature_probe { LogLevel::Info } else { LogLevel::Warn };
        log_at(level, || {
            refusals::sentence(call, is_of_vendor(call))
                .unwrap_or_else(|| sentence(&format!("{call}{version}")))
        });
    })
}

/// Reports whether the device looks like one of the vendor that the call belongs to.
fn is_of_vendor(call: Call) -> bool {
    refusals::vendor_of(call)
        .is_some_and(|vendor| known_profile().is_some_and(|is| is.vendor() == Some(vendor)))
}

fn sentence(what: &str) -> String {
    format!("{what} is refused with EOPNOTSUPP: this device does not have it")
}

/// Refuses a call that returns an errno.
pub(crate) fn int(call: Call, version: &str) -> c_int {
    because(call, version)
}

/// Refuses a call that returns -1 and errno, such as one that returns a descriptor.
pub(crate) fn minus(call: Call, version: &str) -> c_int {
    because(call, version);
    -1
}

/// Refuses a call that returns a number, or a negative errno.
pub(crate) fn negative(call: Call, version: &str) -> c_int {
    -because(call, version)
}

/// Refuses a call that returns an object, or NULL and errno.
pub(crate) fn null(call: Call, version: &str) -> *mut c_void {
    because(call, version);
    ptr::null_mut()
}

/// Answers no to a question, or does nothing in a call without a result.
pub(crate) const fn plain(_call: Call, _version: &str) -> usize {
    0
}

/// Refuses the call of a table entry that is no call.
pub(crate) extern "C" fn entry() -> *mut c_void {
    unsupported(|| {
        log_at(LogLevel::Warn, || sentence("ibv_context_ops (an entry that verbs.h does not use)"))
    });
    ptr::null_mut()
}

/// Defines a C function that refuses a call, for an entry of a table: how the call fails, and its name.
macro_rules! refused {
    (errno, $call:ident) => {{
        extern "C" fn refuse() -> std::ffi::c_int {
            crate::entry::unsupported::int(pumice_calls::Call::$call, "")
        }
        const { assert!(matches!(pumice_calls::Call::$call.row().answer, pumice_calls::ErrorReturn::Errno)) };
        crate::abi::operation!(refuse)
    }};
    (null, $call:ident) => {{
        extern "C" fn refuse() -> *mut std::ffi::c_void {
            crate::entry::unsupported::null(pumice_calls::Call::$call, "")
        }
        const { assert!(matches!(pumice_calls::Call::$call.row().answer, pumice_calls::ErrorReturn::Null)) };
        crate::abi::operation!(refuse)
    }};
}
pub(crate) use refused;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::errno;

    #[test]
    fn each_convention_returns_not_supported() {
        assert_eq!(int(Call::ibv_destroy_counters, ""), libc::EOPNOTSUPP);
        assert_eq!((minus(Call::ibv_dm_export_dmabuf_fd, ""), errno()), (-1, libc::EOPNOTSUPP));
        assert_eq!(negative(Call::efadv_get_max_rq_depth, ""), -libc::EOPNOTSUPP);
        assert!(null(Call::ibv_create_counters, "").is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

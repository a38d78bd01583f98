//! Refusals without a reason of their own, and the refused calls of vendors' libraries.
//!
//! The calls of vendors' libraries (mlx5dv_*, efadv_*, mlx4dv_*, manadv_*): their vendors, and what to use
//! instead.
//!
//! Refusals without a reason of their own: the call and its errno are logged nevertheless, so that no call
//! fails without a message. A message by the code that refuses (`Errno::because`) is better.

use pumice_calls::{Call, CallFamily};
use pumice_device::event::{Event, Topics};
use pumice_device::profile::Vendor;
use pumice_device::settings::LogLevel;

use crate::call_sites::current_call::current;
use crate::check;
use crate::gate::CallSubject;
use crate::log::{device_subscribers, log_at, logs, take_log_message, take_logged};
use crate::platform::Errno;
use crate::platform::threads::RESTART;

/// Logs that a call ended with an errno; `is_planned` is true if a rule of a fault plan injected it, or if
/// the device is lost.
#[cold]
pub(crate) fn log_refusal(call: Call, errno: Errno, about: CallSubject, is_planned: bool) {
    emit(call, errno, about);
    if check::is_on() && !is_planned && errno != RESTART {
        let logged = take_log_message();
        let sentence =
            if logged.is_empty() { format!("{call} is refused with {}", meaning(errno)) } else { logged };
        check::call_refused(call, errno.0, about.device(), &sentence);
    }
    if take_logged() || is_normal_result(errno) || !logs(LogLevel::Warn) {
        return;
    }
    log_at(LogLevel::Warn, || format!("{call} is refused with {}", meaning(errno)));
    take_logged();
}

/// Notifies the subscribers of the device of a call that was refused.
fn emit(call: Call, errno: Errno, about: CallSubject) {
    if is_normal_result(errno) {
        return;
    }
    let device = about.device();
    if device_subscribers::has_subscriber(device, Topics::CALLS) {
        let Errno(number) = errno;
        let made = current().filter(|made| made.call() == Some(call)).map(|made| made.ordinal());
        let ordinal = made.filter(|ordinal| *ordinal > 0);
        let why = meaning(errno);
        device_subscribers::emit(
            device,
            &Event::CallRefused { call: call.name(), ordinal, errno: number, why: &why },
        );
    }
}

/// Reports whether an errno answers a question, and is no refusal.
pub(super) fn is_normal_result(errno: Errno) -> bool {
    errno == RESTART
        || matches!(
            errno.0,
            libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EALREADY | libc::ENODATA | libc::ETIMEDOUT
        )
}

/// Describes an errno in words.
fn meaning(errno: Errno) -> String {
    let words = match errno.0 {
        libc::EINVAL => {
            "EINVAL: an argument is wrong: NULL, of another device, destroyed already, or a number out of \
            its range"
        }
        libc::EOPNOTSUPP => "EOPNOTSUPP: this device does not have what it asks for",
        libc::ENOMEM => "ENOMEM: there is no memory, or a table is full",
        libc::ENOENT => "ENOENT: there is no such object or entry",
        libc::EIO => "EIO: the device or the object has failed",
        libc::ENODEV => "ENODEV: no device has the address",
        libc::EADDRNOTAVAIL => "EADDRNOTAVAIL: the address is none of this device's",
        libc::EADDRINUSE => "EADDRINUSE: another listener has the port",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT: the address is of a family that does not fit",
        libc::ENOSYS => "ENOSYS: there is no such option",
        other => {
            return format!(
                "{}; `pumice explain {other}` says more",
                std::io::Error::from_raw_os_error(other)
            );
        }
    };
    words.to_owned()
}

/// Returns the reason why a vendor's call is refused; `None` if it is no vendor's call. `is_of_vendor` is
/// true if the device looks like that vendor's.
pub(crate) fn sentence(call: Call, is_of_vendor: bool) -> Option<String> {
    let CallFamily::Vendor(adapters) = call.row().family else { return None };
    let replacement = call.row().replacement;
    let reason = match is_of_vendor {
        true => format!("this device looks like {adapters}, and does not have this call"),
        false => format!("only {adapters} adapters have it, and this device is none"),
    };
    Some(format!("{call} is refused with EOPNOTSUPP: {reason}; {replacement}"))
}

/// Returns the vendor of a call.
pub(crate) fn vendor_of(call: Call) -> Option<Vendor> {
    match call.name().split_once("dv_")?.0.trim_start_matches('_') {
        "efa" => Some(Vendor::Amazon),
        "mlx5" => Some(Vendor::Mellanox),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_words() {
        for errno in 1..134 {
            assert!(meaning(Errno(errno)).len() > 10, "{errno}");
        }
    }

    #[test]
    fn every_vendor_call_has_a_sentence_that_names_it_and_a_remedy() {
        for call in Call::ALL {
            let text = sentence(*call, false);
            assert_eq!(text.is_some(), sentence(*call, true).is_some(), "{call}");
            let is_vendors = matches!(call.row().family, CallFamily::Vendor(_));
            assert_eq!(text.is_some(), is_vendors, "{call}");
            assert!(!is_vendors || !call.row().is_refused || !call.row().replacement.is_empty(), "{call}");
            assert!(is_vendors || !call.row().is_feature_probe, "{call}");
            if let Some(text) = text {
                assert!(text.starts_with(call.name()) && text.contains("; "), "{text}");
            }
        }
    }

    #[test]
    fn messages_about_vendor_queue_pairs_name_rc_and_ud() {
        for (call, kind) in [
            (Call::mlx5dv_create_qp, "DC"),
            (Call::mlx4dv_create_qp, "DC"),
            (Call::efadv_create_driver_qp, "SRD"),
            (Call::efadv_create_qp_ex, "SRD"),
        ] {
            let text = sentence(call, false).unwrap();
            assert!(text.contains("RC or UD") && text.contains(kind), "{text}");
            assert!(!call.row().is_feature_probe);
        }
    }

    #[test]
    fn questions_are_answered_without_a_word() {
        for call in [
            Call::mlx5dv_open_device,
            Call::mlx5dv_query_device,
            Call::efadv_query_device,
            Call::mlx5dv_get_clock_info,
        ] {
            assert!(call.row().is_feature_probe, "{call}");
        }
        for call in [Call::mlx5dv_create_mkey, Call::mlx5dv_devx_obj_create, Call::efadv_create_cq] {
            assert!(!call.row().is_feature_probe, "{call}");
        }
    }
}

//! Refusals without a reason of their own: the call and its errno are said all the same, so that no call
//! fails in silence. The better sentence is the one that the refusing code gives (`Errno::because`).

use pumice_calls::Call;
use pumice_device::event::{Event, Topics};
use pumice_device::settings::Log;

use crate::ground::cancellation::RESTART;
use crate::ground::check;
use crate::ground::errno::Errno;
use crate::ground::gate::{About, current};
use crate::ground::listeners;
use crate::ground::log::{log_at, logs, take_logged, take_sentence};

/// A call ends with an errno; `is_planned`: a rule of a fault plan wants it, or the device is lost.
#[cold]
pub(crate) fn tell(call: Call, errno: Errno, about: About, is_planned: bool) {
    emit(call, errno, about);
    if check::is_on() && !is_planned && errno != RESTART {
        let said = take_sentence();
        let sentence =
            if said.is_empty() { format!("{call} is refused with {}", meaning(errno)) } else { said };
        check::call_refused(call, errno.0, about.device(), &sentence);
    }
    if take_logged() || is_answer(errno) || !logs(Log::Warn) {
        return;
    }
    log_at(Log::Warn, || format!("{call} is refused with {}", meaning(errno)));
    take_logged();
}

/// Tells those who listen to the device of a call that was refused.
fn emit(call: Call, errno: Errno, about: About) {
    if is_answer(errno) {
        return;
    }
    let device = about.device();
    if listeners::hear(device, Topics::CALLS) {
        let Errno(number) = errno;
        let made = current().filter(|made| made.call() == Some(call)).map(|made| made.ordinal());
        let ordinal = made.filter(|ordinal| *ordinal > 0);
        let why = meaning(errno);
        listeners::emit(device, &Event::CallRefused { call: call.name(), ordinal, errno: number, why: &why });
    }
}

/// Errnos that answer a question, and refuse nothing.
pub(super) fn is_answer(errno: Errno) -> bool {
    errno == RESTART
        || matches!(
            errno.0,
            libc::EAGAIN | libc::EINTR | libc::EINPROGRESS | libc::EALREADY | libc::ENODATA | libc::ETIMEDOUT
        )
}

/// An errno in words.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_words() {
        for errno in 1..134 {
            assert!(meaning(Errno(errno)).len() > 10, "{errno}");
        }
    }
}

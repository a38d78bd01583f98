//! Descriptors that are readable while a signal is pending (`signalfd`).
//!
//! The kernel looks at the signals of the thread that asks, so that the supervisor asks in vain: it compares
//! the descriptor's signals with those that are pending for the thread. An epoll descriptor among whose files
//! may be such a one is not asked either, because the kernel then forgets that a signal came; the thread
//! itself looks, each time when something has changed.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::signals::pending;
use super::tracee::Tracee;

/// The thread on whose behalf descriptors are looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    thread: Tracee,
    /// Whether any descriptor of the world may be one for signals.
    has_signal_files: bool,
}

impl Asker {
    pub(crate) const fn new(thread: Tracee, has_signal_files: bool) -> Asker {
        Asker { thread, has_signal_files }
    }

    /// Whether a file is ready to be read, if the kernel cannot tell the supervisor; `None`: the kernel can.
    pub(crate) fn is_readable(self, file: BorrowedFd<'_>) -> Option<bool> {
        if !self.has_signal_files {
            return None;
        }
        match kind(file).as_deref() {
            Some("anon_inode:[signalfd]") => Some(signals_of(file)? & pending(self.thread) != 0),
            Some(EPOLL) => Some(true),
            _ => None,
        }
    }
}

/// The link of an epoll descriptor.
pub(crate) const EPOLL: &str = "anon_inode:[eventpoll]";

/// What a file without a name is, as its link says.
pub(crate) fn kind(file: BorrowedFd<'_>) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    link.into_os_string().into_string().ok()
}

/// The signals that a descriptor is for.
fn signals_of(file: BorrowedFd<'_>) -> Option<u64> {
    let known = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mask = known.lines().find_map(|line| line.strip_prefix("sigmask:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use nix::sys::signal::{SigSet, Signal};
    use nix::sys::signalfd::SignalFd;
    use nix::unistd::gettid;

    use super::*;

    #[test]
    fn a_descriptor_for_signals_says_which() {
        let mut set = SigSet::empty();
        set.add(Signal::SIGUSR2);
        let file = SignalFd::new(&set).unwrap();
        assert_eq!(signals_of(file.as_fd()), Some(super::super::signals::signal_bit(libc::SIGUSR2)));
        let asker = |has_signal_files| Asker::new(Tracee(gettid()), has_signal_files);
        assert_eq!(asker(true).is_readable(file.as_fd()), Some(false));
        assert_eq!(asker(false).is_readable(file.as_fd()), None);
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert_eq!(asker(true).is_readable(reader.as_fd()), None);
    }
}

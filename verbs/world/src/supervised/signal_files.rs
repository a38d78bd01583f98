//! Descriptors that are readable while a signal is pending (`signalfd`).
//!
//! The kernel checks the signals of the thread that polls, so that a poll by the supervisor is useless:
//! instead, the supervisor compares the descriptor's signals with those that are pending for the thread. An
//! epoll descriptor that may contain a signalfd is not polled either, because the kernel then forgets that a
//! signal arrived; the thread itself polls it, each time when something has changed.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::signals::pending;
use super::tracee::Tracee;

/// The thread on whose behalf descriptors are polled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollingThread {
    thread: Tracee,
    /// The world may have a descriptor for signals.
    has_signal_files: bool,
}

impl PollingThread {
    pub(crate) const fn new(thread: Tracee, has_signal_files: bool) -> PollingThread {
        PollingThread { thread, has_signal_files }
    }

    /// Reports whether a file can be read, if the kernel cannot tell the supervisor; `None` if the kernel
    /// can.
    pub(crate) fn is_readable(self, file: BorrowedFd<'_>) -> Option<bool> {
        if !self.has_signal_files {
            return None;
        }
        match file_kind(file).as_deref() {
            Some(SIGNALS) => Some(signals_of(file)? & pending(self.thread) != 0),
            Some(EPOLL) => Some(true),
            _ => None,
        }
    }
}

/// Link text of a descriptor for signals.
pub(crate) const SIGNALS: &str = "anon_inode:[signalfd]";
/// Length of what is read about a signal, and the part of it with the processor time of a child.
const SIGNAL_BYTES: u64 = 128;
const TIMES: std::ops::Range<u64> = 56..72;

/// Clears the processor times in what was read of signals.
pub(crate) fn clear_times(thread: Tracee, at: u64, bytes: i64) -> nix::Result<()> {
    let signals = u64::try_from(bytes).unwrap_or(0) / SIGNAL_BYTES;
    let zeros = [0; (TIMES.end - TIMES.start) as usize];
    (0..signals)
        .try_for_each(|index| thread.write(at.wrapping_add(index * SIGNAL_BYTES + TIMES.start), &zeros))
}

/// Link text of an epoll descriptor.
pub(crate) const EPOLL: &str = "anon_inode:[eventpoll]";

/// Returns the kind of a file without a name, from its link.
pub(crate) fn file_kind(file: BorrowedFd<'_>) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    link.into_os_string().into_string().ok()
}

/// Returns the signals that a descriptor is for.
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
        let polling_thread = |has_signal_files| PollingThread::new(Tracee(gettid()), has_signal_files);
        assert_eq!(polling_thread(true).is_readable(file.as_fd()), Some(false));
        assert_eq!(polling_thread(false).is_readable(file.as_fd()), None);
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert_eq!(polling_thread(true).is_readable(reader.as_fd()), None);
    }
}

//! Pending signals, the waits that they end, and descriptors that are readable while one is pending.
//!
//! The kernel checks the signals of the thread that polls, so that a poll by the supervisor is useless:
//! instead, the supervisor compares the descriptor's signals with those that are pending for the thread. An
//! epoll descriptor that may contain a signalfd is not polled either, because the kernel then forgets that a
//! signal arrived; the thread itself polls it, each time when something has changed.

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::unistd::Pid;
use syscalls::Sysno;

use super::threads::Call;
use super::tracee::Tracee;
use super::waits::Woken;

/// Room for the status of a thread, which has 1.5 KB.
const STATUS_BYTES: usize = 8192;

/// Reports whether a pending signal ends a wait in this call, and how.
pub(crate) fn ended_by_signal(tracee: Tracee, call: &Call) -> Option<Woken> {
    let status = status_of(tracee.0)?;
    let pending = pending_of(&status);
    if pending == 0 {
        return None;
    }
    if call.number == Sysno::rt_sigtimedwait as u64 {
        let [set, ..] = call.arguments();
        if tracee.read_u64(set).is_ok_and(|set| set & pending != 0) {
            return Some(Woken::Ready);
        }
    }
    let blocked = mask_of(tracee, call).or_else(|| field_of(&status, "SigBlk:")).unwrap_or(0);
    let ignored = field_of(&status, "SigIgn:").unwrap_or(0);
    let caught = field_of(&status, "SigCgt:").unwrap_or(0);
    // The default action of these is to do nothing.
    let quiet = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT].map(signal_bit);
    let quiet = quiet.iter().fold(0, |all, bit| all | bit) & !caught;
    (pending & !blocked & !ignored & !quiet != 0).then_some(Woken::Interrupted)
}

/// Returns the signals that are pending for a thread.
pub(crate) fn pending(tracee: Tracee) -> u64 {
    status_of(tracee.0).map_or(0, |status| pending_of(&status))
}

/// Reads the kernel's status of a thread, in one call: the supervisor does so at each wait.
fn status_of(thread: Pid) -> Option<String> {
    let mut status = Vec::with_capacity(STATUS_BYTES);
    fs::File::open(format!("/proc/{thread}/status"))
        .ok()?
        .take(STATUS_BYTES as u64)
        .read_to_end(&mut status)
        .ok()?;
    String::from_utf8(status).ok()
}

fn pending_of(status: &str) -> u64 {
    field_of(status, "SigPnd:").unwrap_or(0) | field_of(status, "ShdPnd:").unwrap_or(0)
}

/// Returns the bit of a signal in a mask.
pub(crate) const fn signal_bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Returns a number in the kernel's status of a thread.
pub(crate) fn field(thread: Pid, name: &str) -> Option<u64> {
    field_of(&status_of(thread)?, name)
}

/// Parses a number in a status: process ids are decimal, and masks of signals hexadecimal.
fn field_of(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?.trim();
    if name.starts_with("Sig") || name.starts_with("Shd") {
        u64::from_str_radix(value, 16).ok()
    } else {
        value.parse().ok()
    }
}

/// Returns the signals that a call blocks while it waits, if it has a mask.
fn mask_of(tracee: Tracee, call: &Call) -> Option<u64> {
    let [first, _, _, fourth, fifth, sixth] = call.arguments();
    let at = match Sysno::new(call.number as usize) {
        Some(Sysno::rt_sigsuspend) => first,
        Some(Sysno::ppoll) => fourth,
        Some(Sysno::epoll_pwait) | Some(Sysno::epoll_pwait2) => fifth,
        Some(Sysno::pselect6) if sixth != 0 => tracee.read_u64(sixth).ok()?,
        _ => 0,
    };
    if at == 0 { None } else { tracee.read_u64(at).ok() }
}

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

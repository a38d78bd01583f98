//! Pending signals, and the waits that they end.

use std::fs;
use std::io::Read as _;

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

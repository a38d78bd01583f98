//! System calls of the supervisor that no crate offers.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Once;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Whether two descriptors of the supervisor are of one open file.
pub(crate) fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    const KCMP_FILE: i32 = 0;
    let own = std::process::id();
    let (one, other) = (one.as_raw_fd(), other.as_raw_fd());
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, other) == 0 }
}

/// The beginning of a `siginfo_t` of a timer.
#[repr(C)]
pub(crate) struct TimerInfo {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    timer: i32,
    overrun: i32,
    value: u64,
    rest: [u64; 12],
}

/// Sends a signal of a timer to a process, or to one of its threads.
pub(crate) fn queue_signal(leader: i32, thread: Option<i32>, signal: i32, timer: i32, value: u64) {
    let info =
        TimerInfo { signal, errno: 0, code: libc::SI_TIMER, pad: 0, timer, overrun: 0, value, rest: [0; 12] };
    let info = &raw const info;
    match thread {
        // SAFETY: the structure is as long as the kernel reads, and lives through the call.
        Some(thread) => unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, leader, thread, signal, info) },
        // SAFETY: as above.
        None => unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, leader, signal, info) },
    };
}

/// From now on a tick interrupts waits once in this time, in us. What is begun stays.
pub(crate) fn tick_each(us: u32) {
    static BEGUN: Once = Once::new();
    extern "C" fn tick(_: i32) {}
    BEGUN.call_once(|| {
        let action = SigAction::new(SigHandler::Handler(tick), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing.
        if unsafe { sigaction(Signal::SIGALRM, &action) }.is_err() {
            return;
        }
        let time = libc::timeval { tv_sec: i64::from(us / 1_000_000), tv_usec: i64::from(us % 1_000_000) };
        let interval = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: the value lives through the call, and the old one is not asked for.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const interval, std::ptr::null_mut()) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_one_open_file_are_told_from_others() {
        let (one, other) = nix::unistd::pipe().unwrap();
        let again = one.try_clone().unwrap();
        assert!(is_same_file(&one, &again) && !is_same_file(&one, &other));
        assert_eq!(size_of::<TimerInfo>(), size_of::<libc::siginfo_t>());
    }
}

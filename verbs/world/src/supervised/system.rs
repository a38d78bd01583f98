//! System calls of the supervisor that no crate offers.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Whether two descriptors of the supervisor are of one open file.
pub(crate) fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    const KCMP_FILE: i32 = 0;
    let own = std::process::id();
    let (one, other) = (one.as_raw_fd(), other.as_raw_fd());
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, other) == 0 }
}

/// Where the list of a thread's robust locks begins, in its memory; `None`: it cannot be told.
pub(crate) fn robust_list(thread: i32) -> Option<u64> {
    let (mut head, mut length) = (0_u64, 0_usize);
    // SAFETY: the kernel writes one address and one length, into these.
    let done = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut head, &raw mut length) };
    (done == 0).then_some(head)
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

/// Ticks that interrupt the waits of the thread that began them.
pub(crate) struct Ticks(Option<libc::timer_t>);

impl Ticks {
    /// One in this time, in us. Where there is no timer, nothing is interrupted.
    pub(crate) fn each(us: i64) -> Ticks {
        extern "C" fn tick(_: i32) {}
        let action = SigAction::new(SigHandler::Handler(tick), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing.
        if unsafe { sigaction(Signal::SIGALRM, &action) }.is_err() {
            return Ticks(None);
        }
        // SAFETY: all bytes zero are a `sigevent`.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = nix::unistd::gettid().as_raw();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: the structure is whole, and the timer is written into a place of this function.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0 {
            return Ticks(None);
        }
        let time = libc::timespec { tv_sec: us / 1_000_000, tv_nsec: us % 1_000_000 * 1_000 };
        let interval = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer is this one, and the value lives through the call.
        unsafe { libc::timer_settime(timer, 0, &raw const interval, std::ptr::null_mut()) };
        Ticks(Some(timer))
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        if let Some(timer) = self.0 {
            // SAFETY: it was made by `each`, and is given back once.
            unsafe { libc::timer_delete(timer) };
        }
    }
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

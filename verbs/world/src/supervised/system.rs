//! System calls of the supervisor for which no crate has a wrapper.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Reports whether two descriptors of the supervisor refer to one open file.
pub(crate) fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    const KCMP_FILE: i32 = 0;
    let own = std::process::id();
    let (one, other) = (one.as_raw_fd(), other.as_raw_fd());
    // SAFETY: all arguments are numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, other) == 0 }
}

/// Returns the address of a thread's list of robust locks; `None` if it is unknown.
pub(crate) fn robust_list(thread: i32) -> Option<u64> {
    let (mut head, mut length) = (0_u64, 0_usize);
    // SAFETY: the kernel writes one address and one length, into these variables.
    let done = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut head, &raw mut length) };
    (done == 0).then_some(head)
}

/// Reports whether a signal is pending for a stopped thread, or for its process.
pub(crate) fn has_pending_signal(thread: i32) -> bool {
    const PTRACE_PEEKSIGINFO: libc::c_uint = 0x4209;
    const OF_PROCESS: u32 = 1;
    #[repr(C)]
    struct Asked {
        first: u64,
        flags: u32,
        count: i32,
    }
    [0, OF_PROCESS].into_iter().any(|flags| {
        let asked = Asked { first: 0, flags, count: 1 };
        // SAFETY: a `siginfo_t` of zero bytes is valid.
        let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel reads the first structure and writes at most one of the second, both of which
        // live during the call.
        let count = unsafe { libc::ptrace(PTRACE_PEEKSIGINFO, thread, &raw const asked, &raw mut found) };
        // An error does not say that there is none.
        count != 0
    })
}

/// Makes the group of a socket choose by this filter. Returns whether that succeeded.
pub(crate) fn attach_steering(socket: i32, filter: &[libc::sock_filter]) -> bool {
    let Ok(len) = u16::try_from(filter.len()) else { return false };
    let mut filter = filter.to_vec();
    let whole = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the filter has the length given, and lives during the call.
    let done = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const whole).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    done == 0
}

/// Makes the kernel choose in the group of a socket. Groups without a filter stay as they are.
pub(crate) fn detach_steering(socket: i32) {
    let unused = 0_i32;
    // SAFETY: the value lives during the call, and has the length given.
    unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_DETACH_REUSEPORT_BPF,
            (&raw const unused).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
}

/// Part of a `siginfo_t` about a child with the processor time that it has used, in bytes.
pub(crate) const TIMES_OF_CHILD: std::ops::Range<usize> = 32..48;

/// Clears the processor times in a signal about a child.
pub(crate) fn clear_times_of_child(about: &mut libc::siginfo_t) {
    let bytes: *mut u8 = (&raw mut *about).cast();
    // SAFETY: the structure is longer than these bytes, and any bytes are valid there.
    unsafe { bytes.add(TIMES_OF_CHILD.start).write_bytes(0, TIMES_OF_CHILD.len()) };
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

/// Sends the signal of a timer to a process, or to one of its threads.
pub(crate) fn queue_signal(leader: i32, thread: Option<i32>, signal: i32, timer: i32, value: u64) {
    let info =
        TimerInfo { signal, errno: 0, code: libc::SI_TIMER, pad: 0, timer, overrun: 0, value, rest: [0; 12] };
    let info = &raw const info;
    match thread {
        // SAFETY: the structure is as long as what the kernel reads, and lives during the call.
        Some(thread) => unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, leader, thread, signal, info) },
        // SAFETY: the same as above.
        None => unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, leader, signal, info) },
    };
}

/// A timer whose ticks interrupt the waits of the thread that created it.
pub(crate) struct TickTimer(Option<libc::timer_t>);

impl TickTimer {
    /// Starts a tick every `us` microseconds. If no timer is available, nothing is interrupted.
    pub(crate) fn every(us: i64) -> TickTimer {
        extern "C" fn tick(_: i32) {}
        let action = SigAction::new(SigHandler::Handler(tick), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing.
        if unsafe { sigaction(Signal::SIGALRM, &action) }.is_err() {
            return TickTimer(None);
        }
        // SAFETY: a `sigevent` of zero bytes is valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = nix::unistd::gettid().as_raw();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: the structure is initialized, and the timer is written to a variable of this function.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0 {
            return TickTimer(None);
        }
        let time = libc::timespec { tv_sec: us / 1_000_000, tv_nsec: us % 1_000_000 * 1_000 };
        let interval = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer is valid, and the value lives during the call.
        unsafe { libc::timer_settime(timer, 0, &raw const interval, std::ptr::null_mut()) };
        TickTimer(Some(timer))
    }
}

impl Drop for TickTimer {
    fn drop(&mut self) {
        if let Some(timer) = self.0 {
            // SAFETY: `every` created the timer, and it is deleted once.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_one_open_file_are_distinguished_from_others() {
        let (one, other) = nix::unistd::pipe().unwrap();
        let again = one.try_clone().unwrap();
        assert!(is_same_file(&one, &again) && !is_same_file(&one, &other));
        assert_eq!(size_of::<TimerInfo>(), size_of::<libc::siginfo_t>());
    }
}

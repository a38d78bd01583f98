//! Waiting for descriptors of both kinds: poll(2), select(2), epoll(7).

use std::ffi::c_int;
use std::slice;
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use pumice_platform::outside::time as clock;

use crate::descriptors::{is_rsocket, rsocket_set_of, set_rsocket_set};
use crate::functions::{call, set_errno};

/// Data word of the kernel's own set in librdmacm's set. Programs use pointers and small numbers.
const KERNEL: u64 = 0xfeed_5e75_0000_0001;

/// # Safety
/// The pointer must be to the caller's array.
unsafe fn any_rsocket(fds: *mut pollfd, count: nfds_t) -> bool {
    // SAFETY: the caller guarantees the array.
    !fds.is_null()
        && unsafe { slice::from_raw_parts(fds, count as usize) }.iter().any(|one| is_rsocket(one.fd))
}

/// Replaces poll(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the pointer is to the caller's array.
    if unsafe { any_rsocket(fds, count) } {
        return call!(of_librdmacm "rpoll", (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int);
    }
    call!(original "poll", (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int)
}

/// Replaces poll(2), where the compiler knows how long the array is.
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    if (count as usize).saturating_mul(size_of::<pollfd>()) <= room {
        // SAFETY: the caller keeps the requirements.
        return unsafe { poll(fds, count, timeout) };
    }
    call!(original "__poll_chk", (fds: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int)
}

/// Runs a wait with the caller's signal mask. Unlike the kernel's call, it does not see a signal between the
/// change and the wait.
///
/// # Safety
/// The pointer must be null or to the caller's mask.
unsafe fn masked(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    let mut before = std::mem::MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the pointer is to the caller's mask; there is room for the mask before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) };
    let result = wait();
    // SAFETY: it was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

/// Converts a time to that of poll(2), rounded up.
///
/// # Safety
/// The pointer must be null or to the caller's structure.
unsafe fn milliseconds(time: *const timespec) -> c_int {
    // SAFETY: the caller guarantees the structure.
    unsafe { time.as_ref() }.map_or(-1, |time| {
        let millis = time.tv_sec.saturating_mul(1000).saturating_add((time.tv_nsec + 999_999) / 1_000_000);
        millis.clamp(0, c_int::MAX.into()) as c_int
    })
}

/// Replaces ppoll(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the pointer is to the caller's array.
    if !unsafe { any_rsocket(fds, count) } {
        return call!(original "ppoll",
            (fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int);
    }
    // SAFETY: the pointer is null or to the caller's structure.
    let timeout = unsafe { milliseconds(time) };
    let wait = || call!(of_librdmacm "rpoll", (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int);
    // SAFETY: the pointer is null or to the caller's mask.
    unsafe { masked(mask, wait) }
}

/// # Safety
/// The pointers must be null or to the caller's sets.
unsafe fn any_in_sets(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    // SAFETY: the pointers are to the caller's sets, which have room for the numbers.
    let holds = |fd: c_int| sets.iter().any(|set| !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) });
    (0..count).any(|fd| is_rsocket(fd) && holds(fd))
}

/// Replaces select(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    // SAFETY: the pointers are to the caller's sets.
    if unsafe { any_in_sets(count, [reads, writes, others]) } {
        let begin = clock::now();
        let result = call!(of_librdmacm "rselect", (count: c_int, reads: *mut fd_set, writes: *mut fd_set,
            others: *mut fd_set, time: *mut timeval) -> c_int);
        // As in Linux, the remaining time is written back. SAFETY: the pointer is null or to the caller's
        // structure.
        if let Some(time) = unsafe { time.as_mut() } {
            let total = Duration::from_secs(time.tv_sec.max(0) as u64)
                .saturating_add(Duration::from_micros(time.tv_usec.max(0) as u64));
            let left = total.saturating_sub(clock::since(begin));
            time.tv_sec = left.as_secs() as libc::time_t;
            time.tv_usec = left.subsec_micros().into();
        }
        return result;
    }
    call!(original "select", (count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set,
        time: *mut timeval) -> c_int)
}

/// Replaces pselect(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the pointers are to the caller's sets.
    if !unsafe { any_in_sets(count, [reads, writes, others]) } {
        return call!(original "pselect", (count: c_int, reads: *mut fd_set, writes: *mut fd_set,
            others: *mut fd_set, time: *const timespec, mask: *const sigset_t) -> c_int);
    }
    // SAFETY: the pointer is null or to the caller's structure.
    let mut own = unsafe { time.as_ref() }.map(|time| timeval {
        tv_sec: time.tv_sec,
        tv_usec: ((time.tv_nsec + 999) / 1000) as libc::suseconds_t,
    });
    let limit = own.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let wait = || {
        call!(of_librdmacm "rselect", (count: c_int, reads: *mut fd_set, writes: *mut fd_set,
            others: *mut fd_set, limit: *mut timeval) -> c_int)
    };
    // SAFETY: the pointer is null or to the caller's mask.
    unsafe { masked(mask, wait) }
}

/// Replaces epoll_ctl(2): rsockets go to a set of librdmacm's, which has the kernel's set as a member.
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if !is_rsocket(fd) {
        return call!(original "epoll_ctl",
            (epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int);
    }
    let set = match rsocket_set_of(epoll) {
        Some(set) => set,
        None => {
            let flags = libc::EPOLL_CLOEXEC;
            let set = call!(of_librdmacm "repoll_create", (flags: c_int) -> c_int);
            if set < 0 {
                return -1;
            }
            let mut kernel = epoll_event { events: libc::EPOLLIN as u32, u64: KERNEL };
            let (add, member) = (libc::EPOLL_CTL_ADD, &raw mut kernel);
            let added = call!(of_librdmacm "repoll_ctl",
                (set: c_int, add: c_int, epoll: c_int, member: *mut epoll_event) -> c_int);
            if added != 0 {
                return -1;
            }
            set_rsocket_set(epoll, Some(set));
            set
        }
    };
    call!(of_librdmacm "repoll_ctl", (set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int)
}

/// Replaces epoll_wait(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let Some(set) = rsocket_set_of(epoll) else {
        return call!(original "epoll_wait",
            (epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int);
    };
    if events.is_null() || most <= 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    let until = u64::try_from(timeout).ok().map(|millis| clock::now() + Duration::from_millis(millis));
    loop {
        let left = until.map_or(-1, |until| {
            let left = until.saturating_duration_since(clock::now());
            left.as_millis().saturating_add(u128::from(left.subsec_micros() % 1000 != 0)).min(1 << 30)
                as c_int
        });
        let reported = call!(of_librdmacm "repoll_wait",
            (set: c_int, events: *mut epoll_event, most: c_int, left: c_int) -> c_int);
        let Ok(mut count) = usize::try_from(reported) else { return -1 };
        // SAFETY: this many entries were written.
        let list = unsafe { slice::from_raw_parts_mut(events, count) };
        if let Some(index) = list.iter().position(|event| event.u64 == KERNEL) {
            // The kernel set's own events replace the one event that represents them.
            list.swap(index, count - 1);
            count -= 1;
            // SAFETY: the address is within the caller's array.
            let rest = unsafe { events.add(count) };
            let (room, now) = (most - count as c_int, 0);
            let more = call!(original "epoll_wait",
                (epoll: c_int, rest: *mut epoll_event, room: c_int, now: c_int) -> c_int);
            count += usize::try_from(more).unwrap_or(0);
        }
        if count > 0 || until.is_some_and(|until| until <= clock::now()) {
            return count as c_int;
        }
    }
}

/// Replaces epoll_pwait(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if rsocket_set_of(epoll).is_none() {
        return call!(original "epoll_pwait", (epoll: c_int, events: *mut epoll_event, most: c_int,
            timeout: c_int, mask: *const sigset_t) -> c_int);
    }
    // SAFETY: the caller keeps the requirements.
    unsafe { masked(mask, || epoll_wait(epoll, events, most, timeout)) }
}

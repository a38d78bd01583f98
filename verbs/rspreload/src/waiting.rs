//! Waiting for descriptors of both kinds: poll(2), select(2), epoll(7).

use std::ffi::c_int;
use std::slice;
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use pumice_ground::outside::time as clock;

use crate::descriptors::{is_rsocket, put_behind, set_behind};
use crate::functions::{call, set_errno};

/// The word of the kernel's own set in the set that stands behind it. Programs use pointers and small
/// numbers.
const KERNEL: u64 = 0xfeed_5e75_0000_0001;

/// # Safety
/// The caller's array.
unsafe fn any_rsocket(fds: *mut pollfd, count: nfds_t) -> bool {
    // SAFETY: the caller's promise.
    !fds.is_null()
        && unsafe { slice::from_raw_parts(fds, count as usize) }.iter().any(|one| is_rsocket(one.fd))
}

/// poll(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's array.
    if unsafe { any_rsocket(fds, count) } {
        return call!(of_librdmacm "rpoll", (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int);
    }
    call!(original "poll", (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int)
}

/// poll(2), where the compiler knows how long the array is.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: usize,
) -> c_int {
    if (count as usize).saturating_mul(size_of::<pollfd>()) <= room {
        // SAFETY: the caller's promises are handed on.
        return unsafe { poll(fds, count, timeout) };
    }
    call!(original "__poll_chk", (fds: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int)
}

/// Runs with the caller's signal mask. Unlike the kernel's, a signal between the change and the wait is not
/// seen by it.
///
/// # Safety
/// Null or the caller's mask.
unsafe fn masked(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    if mask.is_null() {
        return wait();
    }
    let mut before = std::mem::MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the caller's mask; room for the one before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) };
    let result = wait();
    // SAFETY: it was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

/// A time as poll(2) has it, rounded up.
///
/// # Safety
/// Null or the caller's structure.
unsafe fn milliseconds(time: *const timespec) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { time.as_ref() }.map_or(-1, |time| {
        let millis = time.tv_sec.saturating_mul(1000).saturating_add((time.tv_nsec + 999_999) / 1_000_000);
        millis.clamp(0, c_int::MAX.into()) as c_int
    })
}

/// ppoll(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's array.
    if !unsafe { any_rsocket(fds, count) } {
        return call!(original "ppoll",
            (fds: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int);
    }
    // SAFETY: null or the caller's structure.
    let timeout = unsafe { milliseconds(time) };
    let wait = || call!(of_librdmacm "rpoll", (fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int);
    // SAFETY: null or the caller's mask.
    unsafe { masked(mask, wait) }
}

/// # Safety
/// Null or the caller's sets.
unsafe fn any_in_sets(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    // SAFETY: the caller's sets; the numbers are theirs.
    let holds = |fd: c_int| sets.iter().any(|set| !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) });
    (0..count).any(|fd| is_rsocket(fd) && holds(fd))
}

/// select(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn select(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    // SAFETY: the caller's sets.
    if unsafe { any_in_sets(count, [reads, writes, others]) } {
        let begin = clock::now();
        let result = call!(of_librdmacm "rselect", (count: c_int, reads: *mut fd_set, writes: *mut fd_set,
            others: *mut fd_set, time: *mut timeval) -> c_int);
        // As in Linux, what is left of the time is there to be read.
        // SAFETY: null or the caller's structure.
        if let Some(time) = unsafe { time.as_mut() } {
            let whole = Duration::from_secs(time.tv_sec.max(0) as u64)
                .saturating_add(Duration::from_micros(time.tv_usec.max(0) as u64));
            let left = whole.saturating_sub(clock::since(begin));
            time.tv_sec = left.as_secs() as libc::time_t;
            time.tv_usec = left.subsec_micros().into();
        }
        return result;
    }
    call!(original "select", (count: c_int, reads: *mut fd_set, writes: *mut fd_set, others: *mut fd_set,
        time: *mut timeval) -> c_int)
}

/// pselect(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    others: *mut fd_set,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's sets.
    if !unsafe { any_in_sets(count, [reads, writes, others]) } {
        return call!(original "pselect", (count: c_int, reads: *mut fd_set, writes: *mut fd_set,
            others: *mut fd_set, time: *const timespec, mask: *const sigset_t) -> c_int);
    }
    // SAFETY: null or the caller's structure.
    let mut own = unsafe { time.as_ref() }.map(|time| timeval {
        tv_sec: time.tv_sec,
        tv_usec: ((time.tv_nsec + 999) / 1000) as libc::suseconds_t,
    });
    let limit = own.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let wait = || {
        call!(of_librdmacm "rselect", (count: c_int, reads: *mut fd_set, writes: *mut fd_set,
            others: *mut fd_set, limit: *mut timeval) -> c_int)
    };
    // SAFETY: null or the caller's mask.
    unsafe { masked(mask, wait) }
}

/// epoll_ctl(2): rsockets go to a set of librdmacm's, which has the kernel's as a member.
///
/// # Safety
/// That of the C library's function.
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
    let set = match set_behind(epoll) {
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
            put_behind(epoll, Some(set));
            set
        }
    };
    call!(of_librdmacm "repoll_ctl", (set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int)
}

/// epoll_wait(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let Some(set) = set_behind(epoll) else {
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
        let told = call!(of_librdmacm "repoll_wait",
            (set: c_int, events: *mut epoll_event, most: c_int, left: c_int) -> c_int);
        let Ok(mut count) = usize::try_from(told) else { return -1 };
        // SAFETY: so many were written.
        let list = unsafe { slice::from_raw_parts_mut(events, count) };
        if let Some(index) = list.iter().position(|event| event.u64 == KERNEL) {
            // The kernel's own take the place of the one that stands for them.
            list.swap(index, count - 1);
            count -= 1;
            // SAFETY: within the caller's array.
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

/// epoll_pwait(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if set_behind(epoll).is_none() {
        return call!(original "epoll_pwait", (epoll: c_int, events: *mut epoll_event, most: c_int,
            timeout: c_int, mask: *const sigset_t) -> c_int);
    }
    // SAFETY: the caller's promises are handed on.
    unsafe { masked(mask, || epoll_wait(epoll, events, most, timeout)) }
}

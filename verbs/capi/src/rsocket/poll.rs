//! Waiting for several sockets at once, and for descriptors that are none: `rpoll`, `rselect`.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};

use super::bell::{self, Bell};
use super::reentry::Inside;
use super::stream_socket::{Patience, State};
use super::table::{Socket, find};
use super::transfer::{readiness, readiness_of};
use crate::ground::cancellation::{RESTART, attempt_ends, begun, blocking, earlier};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::outcome::{TRY_AGAIN, attempt};

/// How long a thread polls before it sleeps.
const POLLING: Duration = Duration::from_micros(10);
/// More descriptors than a process can have.
const MOST: usize = 1 << 20;

impl Socket {
    /// What it is ready for, of these events and those that are always told.
    pub(crate) fn readiness(&self, events: i16) -> i16 {
        match self {
            Socket::Stream(stream) => readiness(stream, events),
            Socket::Datagram(datagram) => datagram.readiness(events),
            Socket::Epoll(_) => libc::POLLNVAL,
        }
    }

    /// The thread of this bell is to be woken by changes, or by these descriptors.
    fn watch(&self, bell: &Arc<Bell>, descriptors: &mut Vec<RawFd>) {
        match self {
            Socket::Stream(stream) => descriptors.extend(stream.watch(bell)),
            Socket::Datagram(datagram) => datagram.watch(bell, descriptors),
            Socket::Epoll(_) => {}
        }
    }

    fn unwatch(&self, bell: &Arc<Bell>) {
        match self {
            Socket::Stream(stream) => stream.unwatch(bell),
            Socket::Datagram(datagram) => datagram.unwatch(bell),
            Socket::Epoll(_) => {}
        }
    }
}

/// An entry, with its socket if it is of one.
struct Watched<'a> {
    entry: &'a mut pollfd,
    socket: Option<Socket>,
}

/// Those that are watched, until they are not.
struct Watch<'a, 'b> {
    all: &'a [Watched<'b>],
    bell: Arc<Bell>,
}

impl Drop for Watch<'_, '_> {
    fn drop(&mut self) {
        for socket in self.all.iter().filter_map(|watched| watched.socket.as_ref()) {
            socket.unwatch(&self.bell);
        }
    }
}

/// Looks at all entries: how many are ready.
fn look(all: &mut [Watched<'_>]) -> Result<usize, Errno> {
    let mut ready = 0;
    for Watched { entry, socket } in all.iter_mut() {
        entry.revents = 0;
        match socket {
            Some(socket) => entry.revents = socket.readiness(entry.events),
            None if entry.fd >= 0 => {
                let mut one = [**entry];
                bell::poll(&mut one, Some(Instant::now()))?;
                entry.revents = one.first().map_or(0, |one| one.revents);
            }
            None => {}
        }
        ready += usize::from(entry.revents != 0);
    }
    Ok(ready)
}

/// Waits until an entry is ready or the time is up: how many are.
///
/// # Errors
/// EINTR. [`RESTART`].
pub(crate) fn wait(entries: &mut [pollfd], deadline: Option<Instant>) -> Result<usize, Errno> {
    let mut all: Vec<Watched<'_>> = entries
        .iter_mut()
        .map(|entry| {
            let socket = find(entry.fd).filter(|_| entry.fd >= 0);
            Watched { entry, socket }
        })
        .collect();
    if let [only] = all.as_mut_slice()
        && let Some(Socket::Stream(stream)) = &only.socket
        && deadline.is_none_or(|deadline| deadline > Instant::now())
    {
        // One stream is waited for in the device, as receiving does.
        let patience = deadline.map_or(Patience::Endless, Patience::Until);
        let events = only.entry.events;
        let mut ready = 0;
        let waited = stream.wait(stream.lock(), patience, |state: &mut State| {
            ready = readiness_of(state, events);
            ready != 0
        });
        only.entry.revents = ready;
        return match waited {
            Ok(_) => Ok(1),
            Err(Errno(libc::EAGAIN)) => Ok(0),
            Err(errno) => Err(errno),
        };
    }
    let begin = Instant::now();
    loop {
        let ready = look(&mut all)?;
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(ready);
        }
        if begin.elapsed() >= POLLING {
            break;
        }
    }
    let bell = Bell::of_thread()?;
    bell.hush();
    loop {
        let mut sleeping = vec![bell.entry()];
        let watch = Watch { all: &all, bell: Arc::clone(&bell) };
        let mut descriptors = Vec::new();
        for Watched { entry, socket } in &all {
            match socket {
                Some(socket) => socket.watch(&bell, &mut descriptors),
                None => sleeping.push(pollfd { fd: entry.fd, events: entry.events, revents: 0 }),
            }
        }
        let wakes = |fd: &RawFd| pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
        sleeping.extend(descriptors.iter().map(wakes));
        let watched_is_ready = all.iter().any(|watched| {
            watched.socket.as_ref().is_some_and(|socket| socket.readiness(watched.entry.events) != 0)
        });
        let ends = attempt_ends();
        let slept = if watched_is_ready { Ok(0) } else { bell::poll(&mut sleeping, earlier(deadline, ends)) };
        drop(watch);
        bell.hush();
        slept?;
        let ready = look(&mut all)?;
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(ready);
        }
        if ends.is_some_and(|end| end <= Instant::now()) {
            return Err(RESTART);
        }
    }
}

/// A time of poll(2), counted from when the call began.
pub(crate) fn deadline(milliseconds: c_int) -> Option<Instant> {
    u64::try_from(milliseconds).ok().map(|time| begun() + Duration::from_millis(time))
}

/// poll(2), for sockets and other descriptors.
pub(crate) unsafe extern "C-unwind" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's promise.
    blocking(c_int::from(TRY_AGAIN), || attempt(|| unsafe { poll_entries(fds, nfds, timeout) }))
}

/// # Safety
/// The caller's array.
unsafe fn poll_entries(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> Result<c_int, Errno> {
    let _inside = Inside::enter();
    let count = usize::try_from(nfds).ok().filter(|count| *count <= MOST).ok_or(INVALID)?;
    if fds.is_null() && count > 0 {
        return Err(Errno(libc::EFAULT));
    }
    if count == 0 {
        return Ok(wait(&mut [], deadline(timeout))? as c_int);
    }
    // SAFETY: the caller's array.
    let entries = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    Ok(wait(entries, deadline(timeout))? as c_int)
}

/// select(2), for sockets and other descriptors.
pub(crate) unsafe extern "C-unwind" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        // SAFETY: the caller's promise.
        attempt(|| unsafe { select_sets(nfds, [readfds, writefds, exceptfds], timeout) })
    })
}

/// # Safety
/// Null or the caller's sets and time.
unsafe fn select_sets(
    nfds: c_int,
    [readfds, writefds, exceptfds]: [*mut fd_set; 3],
    timeout: *mut timeval,
) -> Result<c_int, Errno> {
    let _inside = Inside::enter();
    if !(0..=libc::FD_SETSIZE as c_int).contains(&nfds) {
        return Err(INVALID);
    }
    // SAFETY: null or the caller's sets; the number is one of theirs.
    let is_set = |set: *mut fd_set, fd| !set.is_null() && unsafe { libc::FD_ISSET(fd, set) };
    let mut entries = Vec::new();
    for fd in 0..nfds {
        let reads = if is_set(readfds, fd) { libc::POLLIN } else { 0 };
        let writes = if is_set(writefds, fd) { libc::POLLOUT } else { 0 };
        if reads | writes != 0 || is_set(exceptfds, fd) {
            entries.push(pollfd { fd, events: reads | writes, revents: 0 });
        }
    }
    // SAFETY: null or the caller's structure.
    let deadline = match unsafe { timeout.as_ref() } {
        None => None,
        Some(time) => {
            let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
            let (Ok(seconds), Ok(micros)) = (seconds, micros) else { return Err(INVALID) };
            let time =
                Duration::from_secs(seconds.min(1 << 32)).saturating_add(Duration::from_micros(micros));
            Some(begun() + time)
        }
    };
    wait(&mut entries, deadline)?;
    if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    let mut count = 0;
    for (set, bit, wanted) in [
        (readfds, libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLIN),
        (writefds, libc::POLLOUT | libc::POLLERR, libc::POLLOUT),
        (exceptfds, libc::POLLPRI, 0),
    ] {
        if set.is_null() {
            continue;
        }
        // SAFETY: the caller's set.
        unsafe { libc::FD_ZERO(set) };
        for entry in &entries {
            if entry.revents & bit != 0 && entry.events & wanted == wanted {
                // SAFETY: the caller's set; the number was in one.
                unsafe { libc::FD_SET(entry.fd, set) };
                count += 1;
            }
        }
    }
    Ok(count)
}

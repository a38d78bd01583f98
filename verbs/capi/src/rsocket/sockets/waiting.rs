//! Waiting for several sockets at once, and for other descriptors.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::pollfd;
use pumice_device::outside;

use super::stream::{StreamState, WaitLimit};
use super::table::{Socket, find};
use super::transfer::{readiness, readiness_of};
use crate::platform::cancellation::{RESTART, attempt_ends, begun, earlier};
use crate::platform::errno::Errno;
use crate::platform::system_call::poll;
use crate::rsocket::parts::waker::Waker;

/// Time for which a thread polls before it sleeps.
const POLLING: Duration = Duration::from_micros(10);

impl Socket {
    /// Returns the events that it is ready for, of these and those that are always reported.
    pub(crate) fn readiness(&self, events: i16) -> i16 {
        match self {
            Socket::Stream(stream) => readiness(stream, events),
            Socket::Datagram(datagram) => datagram.readiness(events),
            Socket::Epoll(_) => libc::POLLNVAL,
        }
    }

    /// Makes changes, or these descriptors, wake the thread of this waker.
    fn watch(&self, waker: &Arc<Waker>, descriptors: &mut Vec<RawFd>) {
        match self {
            Socket::Stream(stream) => descriptors.extend(stream.watch(waker)),
            Socket::Datagram(datagram) => datagram.watch(waker, descriptors),
            Socket::Epoll(_) => {}
        }
    }

    fn unwatch(&self, waker: &Arc<Waker>) {
        match self {
            Socket::Stream(stream) => stream.unwatch(waker),
            Socket::Datagram(datagram) => datagram.unwatch(waker),
            Socket::Epoll(_) => {}
        }
    }
}

/// An entry, with its socket if it is of one.
struct PolledEntry<'a> {
    entry: &'a mut pollfd,
    socket: Option<Socket>,
}

/// A guard for sockets that wake the thread of a waker; dropping it ends that.
struct UnwatchGuard<'a, 'b> {
    all: &'a [PolledEntry<'b>],
    waker: Arc<Waker>,
}

impl Drop for UnwatchGuard<'_, '_> {
    fn drop(&mut self) {
        for socket in self.all.iter().filter_map(|watched| watched.socket.as_ref()) {
            socket.unwatch(&self.waker);
        }
    }
}

/// Checks all entries; returns how many are ready.
fn poll_entries(all: &mut [PolledEntry<'_>]) -> Result<usize, Errno> {
    let mut ready = 0;
    for PolledEntry { entry, socket } in all.iter_mut() {
        entry.revents = 0;
        match socket {
            Some(socket) => entry.revents = socket.readiness(entry.events),
            None if entry.fd >= 0 => {
                let mut one = [**entry];
                poll(&mut one, Some(outside::now()))?;
                entry.revents = one.first().map_or(0, |one| one.revents);
            }
            None => {}
        }
        ready += usize::from(entry.revents != 0);
    }
    Ok(ready)
}

/// Waits until an entry is ready or the time is up; returns how many are ready.
///
/// # Errors
/// Fails with EINTR or [`RESTART`].
pub(crate) fn wait(entries: &mut [pollfd], deadline: Option<Instant>) -> Result<usize, Errno> {
    let mut all: Vec<PolledEntry<'_>> = entries
        .iter_mut()
        .map(|entry| {
            let socket = find(entry.fd).filter(|_| entry.fd >= 0);
            PolledEntry { entry, socket }
        })
        .collect();
    if deadline.is_none_or(|deadline| deadline > outside::now())
        && let Some(outcome) = wait_for_one(&mut all, deadline)
    {
        return outcome;
    }
    let begin = outside::now();
    loop {
        let ready = poll_entries(&mut all)?;
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= outside::now()) {
            return Ok(ready);
        }
        if outside::since(begin) >= POLLING {
            break;
        }
    }
    let waker = Waker::of_thread()?;
    waker.clear();
    loop {
        let ends = attempt_ends();
        sleep(&all, &waker, earlier(deadline, ends))?;
        let ready = poll_entries(&mut all)?;
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= outside::now()) {
            return Ok(ready);
        }
        if ends.is_some_and(|end| end <= outside::now()) {
            return Err(RESTART);
        }
    }
}

/// Waits in the device, as receiving does, if there is only one entry, and it is of a stream.
fn wait_for_one(all: &mut [PolledEntry<'_>], deadline: Option<Instant>) -> Option<Result<usize, Errno>> {
    let [PolledEntry { entry, socket: Some(Socket::Stream(stream)) }] = all else { return None };
    let patience = deadline.map_or(WaitLimit::Endless, WaitLimit::Until);
    let (events, mut ready) = (entry.events, 0);
    let waited = stream.wait(stream.lock(), patience, |state: &mut StreamState| {
        ready = readiness_of(state, events);
        ready != 0
    });
    entry.revents = ready;
    Some(match waited {
        Ok(_) => Ok(1),
        Err(Errno(libc::EAGAIN)) => Ok(0),
        Err(errno) => Err(errno),
    })
}

/// Sleeps until a change is possible, unless there was one already, or the time is up.
fn sleep(all: &[PolledEntry<'_>], waker: &Arc<Waker>, until: Option<Instant>) -> Result<(), Errno> {
    let mut sleeping = vec![waker.entry()];
    let watch = UnwatchGuard { all, waker: Arc::clone(waker) };
    let mut descriptors = Vec::new();
    for PolledEntry { entry, socket } in all {
        match socket {
            Some(socket) => socket.watch(waker, &mut descriptors),
            None => sleeping.push(pollfd { fd: entry.fd, events: entry.events, revents: 0 }),
        }
    }
    let wakes = |fd: &RawFd| pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    sleeping.extend(descriptors.iter().map(wakes));
    let is_ready = |watched: &PolledEntry<'_>| {
        watched.socket.as_ref().is_some_and(|socket| socket.readiness(watched.entry.events) != 0)
    };
    let slept = if all.iter().any(is_ready) { Ok(0) } else { poll(&mut sleeping, until) };
    drop(watch);
    waker.clear();
    slept.map(drop)
}

/// Returns the end of a timeout of poll(2), counted from when the call began.
pub(crate) fn deadline(milliseconds: c_int) -> Option<Instant> {
    u64::try_from(milliseconds).ok().map(|time| begun() + Duration::from_millis(time))
}

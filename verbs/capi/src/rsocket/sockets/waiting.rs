//! Waiting for several sockets at once, and for descriptors that are none.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::pollfd;
use pumice_device::outside;

use super::stream::{Patience, State};
use super::table::{Socket, find};
use super::transfer::{readiness, readiness_of};
use crate::ground::cancellation::{RESTART, attempt_ends, begun, earlier};
use crate::ground::errno::Errno;
use crate::ground::system_call::poll;
use crate::rsocket::parts::waker::Waker;

/// How long a thread polls before it sleeps.
const POLLING: Duration = Duration::from_micros(10);

impl Socket {
    /// What it is ready for, of these events and those that are always told.
    pub(crate) fn readiness(&self, events: i16) -> i16 {
        match self {
            Socket::Stream(stream) => readiness(stream, events),
            Socket::Datagram(datagram) => datagram.readiness(events),
            Socket::Epoll(_) => libc::POLLNVAL,
        }
    }

    /// The thread of this waker is to be woken by changes, or by these descriptors.
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
struct Watched<'a> {
    entry: &'a mut pollfd,
    socket: Option<Socket>,
}

/// Sockets that wake the thread of a waker; dropping it ends that.
struct Unwatch<'a, 'b> {
    all: &'a [Watched<'b>],
    waker: Arc<Waker>,
}

impl Drop for Unwatch<'_, '_> {
    fn drop(&mut self) {
        for socket in self.all.iter().filter_map(|watched| watched.socket.as_ref()) {
            socket.unwatch(&self.waker);
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
                poll(&mut one, Some(outside::now()))?;
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
    if deadline.is_none_or(|deadline| deadline > outside::now())
        && let Some(outcome) = wait_for_one(&mut all, deadline)
    {
        return outcome;
    }
    let begin = outside::now();
    loop {
        let ready = look(&mut all)?;
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
        let ready = look(&mut all)?;
        if ready > 0 || deadline.is_some_and(|deadline| deadline <= outside::now()) {
            return Ok(ready);
        }
        if ends.is_some_and(|end| end <= outside::now()) {
            return Err(RESTART);
        }
    }
}

/// If there is one entry only, and it is of a stream, waits for it in the device, as receiving does.
fn wait_for_one(all: &mut [Watched<'_>], deadline: Option<Instant>) -> Option<Result<usize, Errno>> {
    let [Watched { entry, socket: Some(Socket::Stream(stream)) }] = all else { return None };
    let patience = deadline.map_or(Patience::Endless, Patience::Until);
    let (events, mut ready) = (entry.events, 0);
    let waited = stream.wait(stream.lock(), patience, |state: &mut State| {
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

/// Sleeps until something may have changed, unless it has already, or the time is up.
fn sleep(all: &[Watched<'_>], waker: &Arc<Waker>, until: Option<Instant>) -> Result<(), Errno> {
    let mut sleeping = vec![waker.entry()];
    let watch = Unwatch { all, waker: Arc::clone(waker) };
    let mut descriptors = Vec::new();
    for Watched { entry, socket } in all {
        match socket {
            Some(socket) => socket.watch(waker, &mut descriptors),
            None => sleeping.push(pollfd { fd: entry.fd, events: entry.events, revents: 0 }),
        }
    }
    let wakes = |fd: &RawFd| pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    sleeping.extend(descriptors.iter().map(wakes));
    let is_ready = |watched: &Watched<'_>| {
        watched.socket.as_ref().is_some_and(|socket| socket.readiness(watched.entry.events) != 0)
    };
    let slept = if all.iter().any(is_ready) { Ok(0) } else { poll(&mut sleeping, until) };
    drop(watch);
    waker.clear();
    slept.map(drop)
}

/// A time of poll(2), counted from when the call began.
pub(crate) fn deadline(milliseconds: c_int) -> Option<Instant> {
    u64::try_from(milliseconds).ok().map(|time| begun() + Duration::from_millis(time))
}

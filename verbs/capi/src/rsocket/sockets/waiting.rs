//! Waiting for several sockets at once and for other descriptors, and the table of sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use libc::pollfd;
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;

use super::datagram::DatagramSocket;
use super::transfer::{readiness, readiness_of};
use super::{StreamSocket, StreamState, WaitLimit};
use crate::log::refusal::refuse;
use crate::platform::Errno;
use crate::platform::system_call::{close, is_open, poll};
use crate::platform::threads::{RESTART, attempt_ends, begun, earlier};
use crate::rsocket::parts::event_thread::Waker;

/// An object that a descriptor stands for.
#[derive(Clone)]
pub(crate) enum Socket {
    Stream(Arc<StreamSocket>),
    Datagram(Arc<DatagramSocket>),
    Epoll(Arc<EpollInterest>),
}

/// The sockets of a process. If it is a forked child, its parent's sockets remain the parent's, with all that
/// they would release.
#[derive(Default)]
struct SocketTable {
    sockets: BTreeMap<c_int, Socket>,
    /// Descriptors of the parent's sockets that were closed here.
    closed: BTreeSet<c_int>,
}

static TABLE: PerProcess<RwLock<SocketTable>> = PerProcess::new(|_| RwLock::default());

/// Adds a socket.
pub(crate) fn insert(descriptor: c_int, socket: Socket) {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.sockets.insert(descriptor, socket);
    // The number means another file now.
    table.closed.insert(descriptor);
}

/// Result of removing a descriptor.
pub(crate) enum RemovedSocket {
    /// The socket was removed from the table.
    Own(Socket),
    /// The descriptor was that of the parent of this forked child, and is closed here.
    Inherited,
}

/// Removes a socket, if there is one.
pub(crate) fn remove(descriptor: c_int) -> Option<RemovedSocket> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = table.sockets.remove(&descriptor) {
        return Some(RemovedSocket::Own(own));
    }
    if !is_parents(&table, descriptor) {
        return None;
    }
    // Only the descriptor is the child's: its connection remains the parent's.
    table.closed.insert(descriptor);
    close(descriptor);
    Some(RemovedSocket::Inherited)
}

/// Reports whether a descriptor of no socket of this process is that of a socket of the process that this one
/// was forked from.
fn is_parents(own: &SocketTable, descriptor: c_int) -> bool {
    !own.closed.contains(&descriptor)
        && TABLE.inherited().any(|table| match table.try_read() {
            Ok(table) => table.sockets.contains_key(&descriptor),
            Err(TryLockError::Poisoned(table)) => table.into_inner().sockets.contains_key(&descriptor),
            // A thread of the parent was changing the table at the fork.
            Err(TryLockError::WouldBlock) => is_open(descriptor),
        })
}

/// Returns the socket of a descriptor, if there is one.
pub(crate) fn find(descriptor: c_int) -> Option<Socket> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).sockets.get(&descriptor).cloned()
}

/// Returns all streams.
pub(crate) fn streams() -> Vec<(c_int, Arc<StreamSocket>)> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let stream = |(descriptor, socket): (&c_int, &Socket)| match socket {
        Socket::Stream(stream) => Some((*descriptor, Arc::clone(stream))),
        _ => None,
    };
    table.sockets.iter().filter_map(stream).collect()
}

/// Returns the socket of a descriptor.
///
/// # Errors
/// Fails with EBADF if this process has no socket of this descriptor.
pub(crate) fn socket(descriptor: c_int) -> Result<Socket, Errno> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    match table.sockets.get(&descriptor) {
        Some(socket) => Ok(socket.clone()),
        None => {
            if is_parents(&table, descriptor) {
                // For sockets this has its own errno.
                refuse("socket");
            }
            Err(Errno(libc::EBADF))
        }
    }
}

/// Events and the program's number, by descriptor.
pub(crate) type Members = BTreeMap<RawFd, (u32, u64)>;

/// A set.
pub(crate) struct EpollInterest {
    descriptor: OwnedFd,
    members: Mutex<Members>,
    /// Threads that wait: they check again when the set changes.
    waiting: Mutex<Vec<Arc<Waker>>>,
}

impl EpollInterest {
    /// Creates an empty set, which programs know by a descriptor.
    pub(crate) fn new(descriptor: OwnedFd) -> EpollInterest {
        EpollInterest { descriptor, members: Mutex::default(), waiting: Mutex::default() }
    }

    /// Returns the descriptor by which programs know it.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Locks the members and returns them.
    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the set; the descriptor itself is closed with the last thread that waits.
    pub(crate) fn close(&self) {
        self.changed();
    }

    /// Wakes the threads that wait.
    pub(crate) fn changed(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|waker| waker.wake());
    }

    /// Adds a thread that begins to wait.
    pub(crate) fn add_waiting(&self, waker: &Arc<Waker>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(waker));
    }

    /// Removes a thread that does not wait any more.
    pub(crate) fn remove_waiting(&self, waker: &Arc<Waker>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| !Arc::ptr_eq(one, waker));
    }
}

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

//! Waiting for several sockets at once: `rpoll`, `rselect`, `repoll_*`.
//!
//! Sets of sockets to wait for: `repoll_create`, `repoll_ctl`, `repoll_wait`. Level-triggered, except
//! EPOLLONESHOT.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{epoll_event, fd_set, nfds_t, pollfd, timeval};
use pumice_calls::Call;
use pumice_device::outside;

use crate::entry::TRY_AGAIN;
use crate::entry::arguments::{OutArray, OutElements};
use crate::entry::sockets::{number, polled};
use crate::platform::threads::{begun, blocking};
use crate::platform::{Errno, INVALID, system_call};
use crate::rsocket::parts::event_thread::{ReentryGuard, Waker};
use crate::rsocket::sockets::waiting;
use crate::rsocket::sockets::waiting::{EpollInterest, Socket, deadline, socket, wait};

/// Largest number of entries, more than a process can have descriptors.
const MOST: usize = 1 << 20;

/// A program's pointer to the entries of poll(2), as a call gets it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct EntriesPointer(*mut pollfd);

impl EntriesPointer {
    /// Returns this number of entries.
    ///
    /// # Errors
    /// Fails with EINVAL if there are more than descriptors, and with EFAULT if the pointer is null.
    fn entries<'a>(self, count: nfds_t) -> Result<&'a mut [pollfd], Errno> {
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST).ok_or(INVALID)?;
        if count == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program's array has this many entries, which only this call accesses until it returns.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, count) })
    }
}

/// Waits as poll(2) does, for sockets and other descriptors.
pub(crate) extern "C-unwind" fn rpoll(fds: EntriesPointer, nfds: nfds_t, timeout: c_int) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        polled(Call::rpoll, || {
            let _inside = ReentryGuard::enter();
            Ok(wait(fds.entries(nfds)?, deadline(timeout))? as c_int)
        })
    })
}

/// Waits as select(2) does, for sockets and other descriptors.
pub(crate) extern "C-unwind" fn rselect(
    nfds: c_int,
    mut readfds: Option<&mut fd_set>,
    mut writefds: Option<&mut fd_set>,
    mut exceptfds: Option<&mut fd_set>,
    timeout: Option<&timeval>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        polled(Call::rselect, || {
            let _inside = ReentryGuard::enter();
            let sets = [readfds.as_deref_mut(), writefds.as_deref_mut(), exceptfds.as_deref_mut()];
            select(nfds, sets, timeout)
        })
    })
}

/// Reports whether a number, which is less than FD_SETSIZE, is in a set.
fn is_set(set: Option<&fd_set>, fd: c_int) -> bool {
    // SAFETY: a live set, which has room for the number.
    set.is_some_and(|set| unsafe { libc::FD_ISSET(fd, set) })
}

fn select(nfds: c_int, sets: [Option<&mut fd_set>; 3], timeout: Option<&timeval>) -> Result<c_int, Errno> {
    if !(0..=libc::FD_SETSIZE as c_int).contains(&nfds) {
        return Err(INVALID);
    }
    let [reads, writes, exceptions] = &sets;
    let mut entries = Vec::new();
    for fd in 0..nfds {
        let reads = if is_set(reads.as_deref(), fd) { libc::POLLIN } else { 0 };
        let writes = if is_set(writes.as_deref(), fd) { libc::POLLOUT } else { 0 };
        if reads | writes != 0 || is_set(exceptions.as_deref(), fd) {
            entries.push(pollfd { fd, events: reads | writes, revents: 0 });
        }
    }
    wait(&mut entries, time_limit(timeout)?)?;
    if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    let meanings = [
        (libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLIN),
        (libc::POLLOUT | libc::POLLERR, libc::POLLOUT),
        (libc::POLLPRI, 0),
    ];
    let mut count = 0;
    for (set, (bit, wanted)) in sets.into_iter().zip(meanings) {
        let Some(set) = set else { continue };
        // SAFETY: a live set.
        unsafe { libc::FD_ZERO(set) };
        for entry in &entries {
            if entry.revents & bit != 0 && entry.events & wanted == wanted {
                // SAFETY: a live set, and a number that was in one.
                unsafe { libc::FD_SET(entry.fd, set) };
                count += 1;
            }
        }
    }
    Ok(count)
}

/// Returns the time at which select(2) has to end; `None` for ever.
fn time_limit(timeout: Option<&timeval>) -> Result<Option<Instant>, Errno> {
    let Some(time) = timeout else { return Ok(None) };
    let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
    let (Ok(seconds), Ok(micros)) = (seconds, micros) else { return Err(INVALID) };
    let time = Duration::from_secs(seconds.min(1 << 32)).saturating_add(Duration::from_micros(micros));
    Ok(Some(begun() + time))
}

const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

fn interest(epfd: c_int) -> Result<Arc<EpollInterest>, Errno> {
    match socket(epfd)? {
        Socket::Epoll(interest) => Ok(interest),
        _ => Err(INVALID),
    }
}

/// Creates a set as epoll_create1(2) does.
pub(crate) extern "C" fn repoll_create(flags: c_int) -> c_int {
    number(Call::repoll_create, || {
        let _inside = ReentryGuard::enter();
        let cloexec = if flags & libc::EPOLL_CLOEXEC != 0 { libc::EFD_CLOEXEC } else { 0 };
        let interest = Arc::new(EpollInterest::new(system_call::event(cloexec)?));
        let descriptor = interest.descriptor();
        waiting::insert(descriptor, Socket::Epoll(interest));
        Ok(descriptor)
    })
}

/// Changes a set as epoll_ctl(2) does.
pub(crate) extern "C" fn repoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: Option<&epoll_event>) -> c_int {
    number(Call::repoll_ctl, || {
        let _inside = ReentryGuard::enter();
        let interest = interest(epfd)?;
        if fd == epfd {
            return Err(INVALID);
        }
        if fd < 0 || !system_call::is_open(fd) && waiting::find(fd).is_none() {
            return Err(Errno(libc::EBADF));
        }
        let mut members = interest.members();
        if op == libc::EPOLL_CTL_DEL {
            members.remove(&fd).ok_or(Errno(libc::ENOENT))?;
        } else {
            let event = event.ok_or(Errno(libc::EFAULT))?;
            match (op, members.contains_key(&fd)) {
                (libc::EPOLL_CTL_ADD, true) => return Err(Errno(libc::EEXIST)),
                (libc::EPOLL_CTL_MOD, false) => return Err(Errno(libc::ENOENT)),
                (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {}
                _ => return Err(INVALID),
            }
            members.insert(fd, (event.events, event.u64));
        }
        drop(members);
        interest.changed();
        Ok(0)
    })
}

/// Waits as epoll_wait(2) does.
pub(crate) extern "C-unwind" fn repoll_wait(
    epfd: c_int,
    events: OutArray<'_, epoll_event>,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        polled(Call::repoll_wait, || {
            let _inside = ReentryGuard::enter();
            let interest = interest(epfd)?;
            let count = usize::try_from(maxevents).ok().filter(|count| *count > 0).ok_or(INVALID)?;
            let mut room = events.elements(count).map_err(|_| Errno(libc::EFAULT))?;
            let until = deadline(timeout);
            let waker = Waker::second_of_thread()?;
            interest.add_waiting(&waker);
            let outcome = wait_for_members(&interest, &waker, &mut room, until);
            interest.remove_waiting(&waker);
            outcome
        })
    })
}

fn wait_for_members(
    interest: &EpollInterest,
    waker: &Waker,
    room: &mut OutElements<'_, epoll_event>,
    until: Option<Instant>,
) -> Result<c_int, Errno> {
    loop {
        let members: Vec<(RawFd, u32, u64)> =
            interest.members().iter().map(|(fd, (events, number))| (*fd, *events, *number)).collect();
        // The first entry is this thread's own, for changes of the set.
        let mut entries = vec![waker.entry()];
        // The names of events that exist for poll(2) have the same numbers.
        entries.extend(members.iter().map(|(fd, events, _)| pollfd {
            fd: *fd,
            events: *events as i16,
            revents: 0,
        }));
        wait(&mut entries, until)?;
        waker.clear();
        // The program was notified once about a member without any event to wait for, and must not be
        // notified again.
        let is_ready = |requested: u32, entry: &pollfd| entry.revents != 0 && requested & !ONE_SHOT != 0;
        let mut count = 0;
        let ready = members
            .iter()
            .zip(entries.iter().skip(1))
            .filter(|((_, requested, _), e)| is_ready(*requested, e));
        for ((fd, requested, number), entry) in ready {
            if !room.put(epoll_event { events: u32::from(entry.revents as u16), u64: *number }) {
                break;
            }
            count += 1;
            if requested & ONE_SHOT != 0 {
                interest.members().entry(*fd).and_modify(|(events, _)| *events = ONE_SHOT);
            }
        }
        if count > 0 || until.is_some_and(|until| until <= outside::now()) {
            return Ok(count);
        }
    }
}

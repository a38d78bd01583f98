//! Sets of sockets to wait for: `repoll_create`, `repoll_ctl`, `repoll_wait`. Level-triggered, but for EPOLLONESHOT.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use libc::{epoll_event, pollfd};

use super::bell::Bell;
use super::poll::{deadline, wait};
use super::reentry::Inside;
use super::table::{self, Socket, socket};
use crate::ground::cancellation::blocking;
use crate::ground::errno::{Errno, INVALID, errno};
use crate::ground::outcome::{TRY_AGAIN, attempt, number};

/// A set.
pub(crate) struct Interest {
    descriptor: OwnedFd,
    /// Events and the program's word, by descriptor.
    members: Mutex<BTreeMap<RawFd, (u32, u64)>>,
    /// Threads that wait: they look again when the set changes.
    waiting: Mutex<Vec<Arc<Bell>>>,
}

impl Interest {
    /// Nothing to do: the descriptor goes with the last thread that waits.
    pub(crate) fn close(&self) {
        self.changed();
    }

    fn changed(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|bell| bell.ring());
    }
}

fn interest(epfd: c_int) -> Result<Arc<Interest>, Errno> {
    match socket(epfd)? {
        Socket::Epoll(interest) => Ok(interest),
        _ => Err(INVALID),
    }
}

/// epoll_create1(2).
pub(crate) unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        let cloexec = if flags & libc::EPOLL_CLOEXEC != 0 { libc::EFD_CLOEXEC } else { 0 };
        // SAFETY: no memory is involved.
        let descriptor = unsafe { libc::eventfd(0, cloexec | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(Errno(errno()));
        }
        // SAFETY: it is new, and nobody else's.
        let own = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let interest = Interest { descriptor: own, members: Mutex::default(), waiting: Mutex::default() };
        table::insert(interest.descriptor.as_raw_fd(), Socket::Epoll(Arc::new(interest)));
        Ok(descriptor)
    })
}

/// epoll_ctl(2).
pub(crate) unsafe extern "C" fn repoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        let interest = interest(epfd)?;
        if fd == epfd {
            return Err(INVALID);
        }
        // SAFETY: no memory is involved.
        if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 && table::find(fd).is_none() {
            return Err(Errno(libc::EBADF));
        }
        let mut members = interest.members.lock().unwrap_or_else(PoisonError::into_inner);
        if op == libc::EPOLL_CTL_DEL {
            members.remove(&fd).ok_or(Errno(libc::ENOENT))?;
        } else {
            // SAFETY: the caller's structure.
            let event = unsafe { event.as_ref() }.ok_or(Errno(libc::EFAULT))?;
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

/// epoll_wait(2).
pub(crate) unsafe extern "C-unwind" fn repoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        // SAFETY: the caller's promise.
        attempt(|| unsafe { wait_for_members(epfd, events, maxevents, timeout) })
    })
}

/// # Safety
/// The caller's array.
unsafe fn wait_for_members(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> Result<c_int, Errno> {
    let _inside = Inside::enter();
    let interest = interest(epfd)?;
    let most = usize::try_from(maxevents).ok().filter(|most| *most > 0).ok_or(INVALID)?;
    if events.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let (until, bell) = (deadline(timeout), Bell::second_of_thread()?);
    interest.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&bell));
    let outcome = loop {
        let members: Vec<(RawFd, u32, u64)> = {
            let members = interest.members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().map(|(fd, (events, word))| (*fd, *events, *word)).collect()
        };
        // The first is this thread's own: a change of the set.
        let mut entries = vec![bell.entry()];
        // The names of events that exist for poll(2) have the same numbers.
        entries.extend(members.iter().map(|(fd, events, _)| pollfd {
            fd: *fd,
            events: *events as i16,
            revents: 0,
        }));
        if let Err(errno) = wait(&mut entries, until) {
            break Err(errno);
        }
        bell.hush();
        let mut told = 0;
        for ((fd, asked, word), entry) in members.iter().zip(entries.iter().skip(1)) {
            // Without any event to wait for, it has been told once and is not to be told again.
            if entry.revents == 0 || *asked & !ONE_SHOT == 0 || told == most {
                continue;
            }
            let event = epoll_event { events: u32::from(entry.revents as u16), u64: *word };
            // SAFETY: room for `most`.
            unsafe { events.add(told).write(event) };
            told += 1;
            if asked & ONE_SHOT != 0 {
                let mut members = interest.members.lock().unwrap_or_else(PoisonError::into_inner);
                members.entry(*fd).and_modify(|(events, _)| *events = ONE_SHOT);
            }
        }
        if told > 0 || until.is_some_and(|until| until <= std::time::Instant::now()) {
            break Ok(told as c_int);
        }
    };
    interest.waiting.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| !Arc::ptr_eq(one, &bell));
    outcome
}

const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

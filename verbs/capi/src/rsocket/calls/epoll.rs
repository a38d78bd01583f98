//! Sets of sockets to wait for: `repoll_create`, `repoll_ctl`, `repoll_wait`. Level-triggered, except
//! EPOLLONESHOT.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use libc::{epoll_event, pollfd};
use pumice_calls::Call;
use pumice_device::outside;

use crate::entry::arguments::{OutArray, OutElements};
use crate::entry::outcome::TRY_AGAIN;
use crate::entry::outcome::sockets::{number, polled};
use crate::platform::cancellation::blocking;
use crate::platform::errno::{Errno, INVALID};
use crate::platform::system_call;
use crate::rsocket::parts::reentry::ReentryGuard;
use crate::rsocket::parts::waker::Waker;
use crate::rsocket::sockets::interest::EpollInterest;
use crate::rsocket::sockets::table::{self, Socket, socket};
use crate::rsocket::sockets::waiting::{deadline, wait};

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
        table::insert(descriptor, Socket::Epoll(interest));
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
        if fd < 0 || !system_call::is_open(fd) && table::find(fd).is_none() {
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

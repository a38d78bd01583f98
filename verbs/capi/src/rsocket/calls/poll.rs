//! Waiting for several sockets at once, and for other descriptors: `rpoll`, `rselect`.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};
use pumice_calls::Call;

use crate::entry::outcome::TRY_AGAIN;
use crate::entry::outcome::sockets::polled;
use crate::platform::cancellation::{begun, blocking};
use crate::platform::errno::{Errno, INVALID};
use crate::rsocket::parts::reentry::ReentryGuard;
use crate::rsocket::sockets::waiting::{deadline, wait};

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

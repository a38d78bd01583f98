//! Whether descriptors of a traced process are ready, found out without running it.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::signal_files::{Asker, EPOLL, kind};
use super::waits::Interest;

/// A process's descriptors, from outside.
#[derive(Debug)]
pub(crate) struct Descriptors(Option<OwnedFd>);

impl Descriptors {
    /// Those of the process with this number.
    pub(crate) fn of(leader: Pid) -> Descriptors {
        let process = rustix::process::Pid::from_raw(leader.as_raw());
        Descriptors(process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok()))
    }

    /// The file behind a descriptor; `None`: there is none.
    pub(crate) fn get(&self, descriptor: i32) -> Option<OwnedFd> {
        // Programs say what they like, and the wrapper takes no negative number.
        let descriptor = Some(descriptor).filter(|descriptor| *descriptor >= 0)?;
        pidfd_getfd(self.0.as_ref()?, descriptor, PidfdGetfdFlags::empty()).ok()
    }

    /// Whether one of these is ready. One that does not exist is: the call says so.
    pub(crate) fn any_is_ready(&self, asker: Asker, interests: &[Interest]) -> bool {
        let mut files = Vec::with_capacity(interests.len());
        for interest in interests.iter().filter(|interest| interest.descriptor >= 0) {
            let Some(file) = self.get(interest.descriptor) else { return true };
            match asker.is_readable(file.as_fd()) {
                Some(true) if interest.events & libc::POLLIN != 0 => return true,
                Some(_) => {}
                None => files.push((file, interest.events)),
            }
        }
        let wanted = files.iter().map(|(file, events)| (file.as_fd(), *events));
        are_ready(&mut wanted.map(|(file, events)| entry(file, events)).collect::<Vec<_>>())
    }

    /// Whether a call on this descriptor would wait in the kernel.
    pub(crate) fn would_wait(&self, asker: Asker, interest: Interest) -> bool {
        let Some(file) = self.get(interest.descriptor) else { return false };
        if is_nonblocking(file.as_fd()) {
            return false;
        }
        let known = asker.is_readable(file.as_fd());
        let is_ready = known.unwrap_or_else(|| are_ready(&mut [entry(file.as_fd(), interest.events)]));
        !is_ready && !is_epoll(file.as_fd())
    }

    /// Whether this is a netlink socket.
    pub(crate) fn speaks_with_kernel(&self, descriptor: i32) -> bool {
        use nix::sys::socket::{AddressFamily, SockaddrLike as _, SockaddrStorage, getsockname};
        let address =
            self.get(descriptor).and_then(|file| getsockname::<SockaddrStorage>(file.as_raw_fd()).ok());
        address.and_then(|address| address.family()) == Some(AddressFamily::Netlink)
    }

    /// How long calls on this socket wait at most, if it has a time-out.
    pub(crate) fn timeout_ns(&self, interest: Interest) -> Option<u64> {
        use nix::sys::socket::{getsockopt, sockopt};
        let file = self.get(interest.descriptor)?;
        let timeout = if interest.events == libc::POLLIN {
            getsockopt(&file, sockopt::ReceiveTimeout).ok()?
        } else {
            getsockopt(&file, sockopt::SendTimeout).ok()?
        };
        let (seconds, micros) = (timeout.tv_sec() as u64, timeout.tv_usec() as u64);
        let ns = seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000));
        (ns > 0).then_some(ns)
    }
}

fn entry(file: BorrowedFd<'_>, events: i16) -> PollFd<'_> {
    PollFd::new(file, PollFlags::from_bits_retain(events))
}

/// Whether one of these is ready, or cannot be asked: then the call says what is wrong.
fn are_ready(entries: &mut [PollFd<'_>]) -> bool {
    look(entries, PollTimeout::ZERO) != Ok(0)
}

/// How many of these are ready. A tick of the watchdog meanwhile says nothing of them: even a look that does
/// not wait may end with it.
fn look(entries: &mut [PollFd<'_>], timeout: PollTimeout) -> nix::Result<i32> {
    loop {
        match poll(entries, timeout) {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
}

/// Whether there is something to read.
pub(crate) fn is_readable(file: BorrowedFd<'_>) -> bool {
    await_readable(file, PollTimeout::ZERO)
}

/// The same, at the end of this time.
pub(crate) fn await_readable(file: BorrowedFd<'_>, timeout: PollTimeout) -> bool {
    look(&mut [entry(file, libc::POLLIN)], timeout) == Ok(1)
}

/// Whether calls on a file never wait.
fn is_nonblocking(file: BorrowedFd<'_>) -> bool {
    let flags = fcntl(file, FcntlArg::F_GETFL).unwrap_or(0);
    OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK)
}

/// Whether a file is an epoll descriptor, which can be polled and not read.
fn is_epoll(file: BorrowedFd<'_>) -> bool {
    kind(file).as_deref() == Some(EPOLL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_during_a_look_makes_nothing_ready() {
        let _ticks = super::super::system::Ticks::each(100);
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        for look in 0..200_000 {
            assert!(!are_ready(&mut [entry(reader.as_fd(), libc::POLLIN)]), "look {look}");
        }
    }
}

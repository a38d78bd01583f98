//! Finds out whether descriptors of a traced process are ready, and waits until everything that was sent by
//! loopback has arrived.
//!
//! Normally a packet arrives within the call that sends it. On a busy machine the kernel defers the rest of a
//! queue to a thread of its own that runs later. Each processor has one queue for all networks: what the
//! supervisor sends to itself on the processor of the world arrives after all that was sent before.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockaddrLike as _, SockaddrStorage, getsockname};
use nix::sys::stat::fstat;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::signals::{EPOLL, PollingThread, file_kind};
use super::waits::Interest;

/// Number of datagrams in a row that have to arrive at once; afterwards nothing is left in the queue, because
/// the effects of a packet are queued behind it.
const AT_ONCE: u32 = 2;
/// Maximum number of datagrams that are sent: other programs may use the queue as well.
const MOST: u32 = 16;
/// Time for which a datagram is awaited, in ms.
const PATIENCE_MS: u16 = 1_000;

/// The packets that may be on their way.
pub(crate) struct Delivery {
    /// Socket that is connected to itself; `None` if this machine has no loopback interface.
    own: Option<UdpSocket>,
    is_pending: bool,
}

impl Delivery {
    pub(crate) fn new() -> Delivery {
        Delivery { own: connected_to_itself().ok(), is_pending: false }
    }

    /// Notes that something may have been sent.
    pub(crate) const fn may_be_pending(&mut self) {
        self.is_pending = true;
    }

    /// Notes a call that sends, if its descriptor is a network socket.
    pub(crate) fn touched(&mut self, file: BorrowedFd<'_>) {
        self.is_pending |= is_of_network(file);
    }

    /// Waits until everything that was sent has arrived.
    pub(crate) fn settle(&mut self) {
        if !std::mem::take(&mut self.is_pending) {
            return;
        }
        let Some(own) = &self.own else { return };
        let (mut at_once, mut sent) = (0, 0);
        while at_once < AT_ONCE && sent < MOST {
            if own.send(&[0]).is_err() {
                return;
            }
            sent += 1;
            let is_there = await_readable(own.as_fd(), PollTimeout::ZERO);
            at_once = if is_there { at_once + 1 } else { 0 };
            if is_there || await_readable(own.as_fd(), PATIENCE_MS.into()) {
                let _ = own.recv(&mut [0]);
            }
        }
    }
}

fn connected_to_itself() -> std::io::Result<UdpSocket> {
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    own.connect(own.local_addr()?)?;
    own.set_nonblocking(true)?;
    Ok(own)
}

/// The descriptors of a process, accessed from outside.
#[derive(Debug)]
pub(crate) struct Descriptors(Option<OwnedFd>);

impl Descriptors {
    /// Returns the descriptors of the process with this id.
    pub(crate) fn of(leader: Pid) -> Descriptors {
        let process = rustix::process::Pid::from_raw(leader.as_raw());
        Descriptors(process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok()))
    }

    /// Duplicates the file of a descriptor; `None` if there is none.
    pub(crate) fn get(&self, descriptor: i32) -> Option<OwnedFd> {
        // Programs may give any number, and the wrapper takes no negative one.
        let descriptor = Some(descriptor).filter(|descriptor| *descriptor >= 0)?;
        pidfd_getfd(self.0.as_ref()?, descriptor, PidfdGetfdFlags::empty()).ok()
    }

    /// Reports whether one of these is ready. A descriptor that does not exist counts as ready, because the
    /// call reports it.
    pub(crate) fn any_is_ready(&self, polling_thread: PollingThread, interests: &[Interest]) -> bool {
        let mut files = Vec::with_capacity(interests.len());
        for interest in interests.iter().filter(|interest| interest.descriptor >= 0) {
            let Some(file) = self.get(interest.descriptor) else { return true };
            match polling_thread.is_readable(file.as_fd()) {
                Some(true) if interest.events & libc::POLLIN != 0 => return true,
                Some(_) => {}
                None => files.push((file, interest.events)),
            }
        }
        let wanted = files.iter().map(|(file, events)| (file.as_fd(), *events));
        are_ready(&mut wanted.map(|(file, events)| entry(file, events)).collect::<Vec<_>>())
    }

    /// Reports whether a call on this descriptor would wait in the kernel.
    pub(crate) fn would_wait(&self, polling_thread: PollingThread, interest: Interest) -> bool {
        let Some(file) = self.get(interest.descriptor) else { return false };
        if is_nonblocking(file.as_fd()) {
            return false;
        }
        let known = polling_thread.is_readable(file.as_fd());
        let is_ready = known.unwrap_or_else(|| are_ready(&mut [entry(file.as_fd(), interest.events)]));
        !is_ready && !is_epoll(file.as_fd())
    }

    /// Returns the file of a descriptor, if calls on it wait.
    pub(crate) fn blocking(&self, descriptor: i32) -> Option<OwnedFd> {
        self.get(descriptor).filter(|file| !is_nonblocking(file.as_fd()))
    }

    /// Reports whether this is a netlink socket.
    pub(crate) fn speaks_with_kernel(&self, descriptor: i32) -> bool {
        self.get(descriptor).and_then(|file| family(file.as_fd())) == Some(AddressFamily::Netlink)
    }

    /// Returns the time-out of calls on this socket, if it has one, in ns.
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

/// Returns the family of a socket's own address; `None` if the file is no socket.
fn family(file: BorrowedFd<'_>) -> Option<AddressFamily> {
    getsockname::<SockaddrStorage>(file.as_raw_fd()).ok().and_then(|address| address.family())
}

/// Reports whether a file is a socket of IPv4 or IPv6.
pub(crate) fn is_of_network(file: BorrowedFd<'_>) -> bool {
    matches!(family(file), Some(AddressFamily::Inet | AddressFamily::Inet6))
}

fn entry(file: BorrowedFd<'_>, events: i16) -> PollFd<'_> {
    PollFd::new(file, PollFlags::from_bits_retain(events))
}

/// Reports whether one of these is ready, or cannot be polled: the call then reports the error.
fn are_ready(entries: &mut [PollFd<'_>]) -> bool {
    look(entries, PollTimeout::ZERO) != Ok(0)
}

/// Counts the ready entries. A tick of the watchdog may interrupt even a poll that does not wait, and is
/// ignored.
fn look(entries: &mut [PollFd<'_>], timeout: PollTimeout) -> nix::Result<i32> {
    loop {
        match poll(entries, timeout) {
            Err(Errno::EINTR) => {}
            answer => return answer,
        }
    }
}

/// Reports whether there is something to read.
pub(crate) fn is_readable(file: BorrowedFd<'_>) -> bool {
    await_readable(file, PollTimeout::ZERO)
}

/// Waits for something to read, at most for `timeout`.
fn await_readable(file: BorrowedFd<'_>, timeout: PollTimeout) -> bool {
    look(&mut [entry(file, libc::POLLIN)], timeout) == Ok(1)
}

/// Reports whether calls on a file never wait.
fn is_nonblocking(file: BorrowedFd<'_>) -> bool {
    let flags = fcntl(file, FcntlArg::F_GETFL).unwrap_or(0);
    OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK)
}

/// Reports whether a file is a pipe.
pub(crate) fn is_pipe(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Reports whether a file is a pipe, or a socket that carries a stream of bytes.
pub(crate) fn is_pipe_or_stream(file: BorrowedFd<'_>) -> bool {
    use nix::sys::socket::{SockType, getsockopt, sockopt};
    match fstat(file).map(|about| about.st_mode & libc::S_IFMT) {
        Ok(libc::S_IFIFO) => true,
        Ok(libc::S_IFSOCK) => getsockopt(&file, sockopt::SockType) == Ok(SockType::Stream),
        _ => false,
    }
}

/// Reports whether a file was given to the world: it is standard input, output or error of this process, and
/// programs outside of the world read or write it.
pub(crate) fn is_outside(file: BorrowedFd<'_>) -> bool {
    let identity = |about: nix::sys::stat::FileStat| (about.st_dev, about.st_ino);
    let Ok(own) = fstat(file).map(identity) else { return false };
    let given = [std::io::stdin().as_fd(), std::io::stdout().as_fd(), std::io::stderr().as_fd()]
        .map(|one| fstat(one).map(identity).ok());
    given.contains(&Some(own))
}

/// Reports whether a file is an epoll descriptor, which can be polled and not read.
fn is_epoll(file: BorrowedFd<'_>) -> bool {
    file_kind(file).as_deref() == Some(EPOLL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_is_there_afterwards() {
        let mut delivery = Delivery::new();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
        delivery.touched(sender.as_fd());
        assert!(delivery.is_pending);
        delivery.settle();
        assert!(!delivery.is_pending);
        assert_eq!(receiver.recv(&mut [0]).unwrap(), 1);
        let (reader, _) = nix::unistd::pipe().unwrap();
        delivery.touched(reader.as_fd());
        assert!(!delivery.is_pending);
    }

    #[test]
    fn a_tick_during_a_look_makes_nothing_ready() {
        let _ticks = super::super::tracee::TickTimer::every(100);
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        for look in 0..200_000 {
            assert!(!are_ready(&mut [entry(reader.as_fd(), libc::POLLIN)]), "look {look}");
        }
    }
}

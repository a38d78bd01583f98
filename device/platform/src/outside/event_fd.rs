//! File descriptors that wake threads: one of the device's own, and threads that sleep on a queue.

use std::io;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::ResourceError;
use crate::outside::files;

/// An eventfd used as one bit: readable while the bit is set. Programs never get it; they wait for an
/// [`EventPipe`]. Its calls are system calls without the C library, so they are
/// no cancellation points.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Returns a descriptor with the bit clear, closed on exec.
    ///
    /// # Errors
    /// `Os`: no descriptor is available.
    pub fn new() -> Result<EventFd, ResourceError> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(EventFd).map_err(|error| {
            ResourceError::Os { what: "eventfd to wake a thread", errno: error.raw_os_error() }
        })
    }

    /// Returns the bell of another process, which sent this descriptor.
    ///
    /// # Errors
    /// `InvalidData`: the descriptor is something else than an eventfd; a write to it might block.
    pub fn of(descriptor: OwnedFd) -> io::Result<EventFd> {
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let kind = files::link(link)?;
        if kind.as_os_str() != "anon_inode:[eventfd]" {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        fcntl_setfl(&descriptor, OFlags::NONBLOCK)?;
        Ok(EventFd(descriptor))
    }

    /// Sets the bit; the threads that wait are woken even if it is set already.
    pub fn set(&self) {
        // The counter refuses only after 2^64 - 2 writes without a clear.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears the bit. Returns whether it was set.
    pub fn clear(&self) -> bool {
        // The read fails only if the bit is clear already.
        read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The offset that stands for the file's own position.
const HERE: u64 = u64::MAX;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A pipe whose reading end programs wait for: it is readable while there is a byte in it, and never
/// writable, as the kernel's event files are. (An eventfd is always writable, and programs that wait for all
/// events of their descriptors would never sleep.) The reading end is created blocking, so that an
/// application may choose `O_NONBLOCK` itself; nothing here ever blocks on either end.
///
/// The owner changes it under the lock of the queue that it stands for.
#[derive(Debug)]
pub struct EventPipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl EventPipe {
    /// Returns an empty pipe, closed on exec.
    ///
    /// # Errors
    /// `Os`: no descriptors are available.
    pub fn new() -> Result<EventPipe, ResourceError> {
        let refused = |error: Errno| ResourceError::Os {
            what: "pipe for a queue of events",
            errno: error.raw_os_error(),
        };
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(refused)?;
        fcntl_setfl(&writer, OFlags::NONBLOCK).map_err(refused)?;
        Ok(EventPipe { reader, writer })
    }

    /// Writes a byte, which wakes the threads that wait, even if the pipe holds one already. Returns false if
    /// the pipe is full; then it stays readable.
    pub fn put(&self) -> bool {
        write(&self.writer, &[0]) == Ok(1)
    }

    /// Takes all bytes out. The application may have read some of them itself.
    pub fn clear(&self) {
        let mut bytes = [0; 1024];
        while self.read(&mut bytes) == Some(bytes.len()) {}
    }

    /// Takes `count` bytes out, or as many as there are.
    pub fn take(&self, count: usize) {
        let mut bytes = [0; 64];
        let mut left = count;
        while left > 0 {
            let part = bytes.get_mut(..left.min(64)).unwrap_or_default();
            match self.read(part) {
                Some(taken) if taken > 0 => left -= taken,
                _ => return,
            }
        }
    }

    /// Reports whether the reading end is readable.
    pub fn is_readable(&self) -> bool {
        let mut entry = [PollFd::new(&self.reader, PollFlags::IN)];
        let ready = poll(&mut entry, Some(&NO_TIME));
        ready == Ok(1) && entry.iter().all(|entry| entry.revents().contains(PollFlags::IN))
    }

    /// Reads what is in the pipe, without waiting, with every setting of the descriptor's flags.
    fn read(&self, bytes: &mut [u8]) -> Option<usize> {
        match preadv2(&self.reader, &mut [IoSliceMut::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
            Ok(length) => Some(length),
            Err(Errno::AGAIN) => None,
            // Before Linux 6.4 the kernel cannot read a pipe without waiting, and the pipe has to be polled
            // first.
            Err(_) if self.is_readable() => read(&self.reader, bytes).ok(),
            Err(_) => None,
        }
    }
}

impl AsFd for EventPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::epoll;

    use super::*;
    use crate::outside::system_call::wait_readable;

    #[test]
    fn readable_exactly_while_set() {
        let event = EventFd::new().unwrap();
        let is_set = || wait_readable(&[event.as_fd().as_raw_fd()], None, Some(Duration::ZERO)).unwrap();
        assert!(!is_set());
        assert!(!event.clear());
        event.set();
        event.set();
        assert!(is_set());
        assert!(event.clear());
        assert!(!is_set());
    }

    fn polled(fd: BorrowedFd<'_>) -> PollFlags {
        let mut entry = [PollFd::new(&fd, PollFlags::IN | PollFlags::OUT)];
        poll(&mut entry, Some(&NO_TIME)).unwrap();
        entry[0].revents()
    }

    #[test]
    fn readable_exactly_while_something_is_in_it_and_never_writable() {
        let pipe = EventPipe::new().unwrap();
        assert_eq!(polled(pipe.as_fd()), PollFlags::empty());
        pipe.clear();
        assert!(pipe.put() && pipe.put());
        assert_eq!(polled(pipe.as_fd()), PollFlags::IN);
        pipe.clear();
        assert_eq!(polled(pipe.as_fd()), PollFlags::empty());
        (0..3000).for_each(|_| assert!(pipe.put()));
        pipe.take(2999);
        assert!(pipe.is_readable());
        pipe.take(77);
        assert!(!pipe.is_readable());
    }

    #[test]
    fn a_pipe_that_is_full_takes_no_more_and_is_emptied() {
        let pipe = EventPipe::new().unwrap();
        let room = (0..1 << 20).take_while(|_| pipe.put()).count();
        assert!(room >= 4096, "{room}");
        assert!(pipe.is_readable());
        pipe.clear();
        assert!(!pipe.is_readable());
        assert!(pipe.put());
    }

    #[test]
    fn an_edge_triggered_epoll_reports_every_byte() {
        let pipe = EventPipe::new().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&set, &pipe, epoll::EventData::new_u64(0), interest).unwrap();
        let events = || {
            let mut ready = [epoll::Event { flags: interest, data: epoll::EventData::new_u64(0) }];
            epoll::wait(&set, &mut ready, Some(&NO_TIME)).unwrap()
        };
        assert_eq!(events(), 0);
        for _ in 0..3 {
            pipe.put();
            assert_eq!((events(), events()), (1, 0));
        }
        pipe.clear();
        assert_eq!(events(), 0);
    }
}

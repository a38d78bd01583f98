//! A file descriptor that tells sleeping threads that a queue is not empty.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::ground::error::ResourceError;
use crate::system_call;

/// A pipe whose reading end programs wait for: it is readable while there is a byte in it, and never writable, as the
/// kernel's event files are. (An eventfd is always writable, and programs that wait for all events of their
/// descriptors would never sleep.) The reading end is created blocking, so that an application may choose `O_NONBLOCK`
/// itself; nothing here ever blocks on either end.
///
/// The owner changes it under the lock of the queue that it stands for.
#[derive(Debug)]
pub struct EventPipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl EventPipe {
    /// An empty pipe, closed on exec.
    ///
    /// # Errors
    /// `Os`: no descriptors are to be had.
    pub fn new() -> Result<EventPipe, ResourceError> {
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        if made != 0 {
            return Err(EventPipe::refused());
        }
        let [reader, writer] = ends;
        // SAFETY: both were just made, and nothing else has them.
        let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(reader), OwnedFd::from_raw_fd(writer)) };
        // SAFETY: no memory is involved.
        if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(EventPipe::refused());
        }
        Ok(EventPipe { reader, writer })
    }

    fn refused() -> ResourceError {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE);
        ResourceError::Os { what: "pipe for a queue of events", errno }
    }

    /// Writes a byte, which wakes the threads that wait, even if the pipe holds one already. Returns false if
    /// the pipe is full; then it stays readable.
    pub fn put(&self) -> bool {
        system_call::write(self.writer.as_raw_fd(), &[0]) == 1
    }

    /// Takes all bytes out. The application may have read some of them itself.
    pub fn clear(&self) {
        let mut bytes = [0; 1024];
        while self.read(&mut bytes) == Some(bytes.len()) {}
    }

    /// Takes so many bytes out, or those that there are.
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

    /// Whether the reading end is readable.
    pub fn is_readable(&self) -> bool {
        let mut entry = [libc::pollfd { fd: self.reader.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a live time.
        let ready = unsafe { system_call::ppoll(&mut entry, &raw mut now) };
        ready == 1 && entry[0].revents & libc::POLLIN != 0
    }

    /// Reads what there is, without waiting.
    fn read(&self, bytes: &mut [u8]) -> Option<usize> {
        let fd = self.reader.as_raw_fd();
        if let Some(read) = system_call::read_now(fd, bytes) {
            return usize::try_from(read).ok();
        }
        // Before Linux 6.4 a pipe has to be asked.
        if !self.is_readable() {
            return None;
        }
        usize::try_from(system_call::read(fd, bytes)).ok()
    }
}

impl AsFd for EventPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(fd: BorrowedFd<'_>) -> i16 {
        let mut entry =
            [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN | libc::POLLOUT, revents: 0 }];
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a live time.
        unsafe { system_call::ppoll(&mut entry, &raw mut now) };
        entry[0].revents
    }

    #[test]
    fn readable_exactly_while_something_is_in_it_and_never_writable() {
        let pipe = EventPipe::new().unwrap();
        assert_eq!(polled(pipe.as_fd()), 0);
        pipe.clear();
        assert!(pipe.put() && pipe.put());
        assert_eq!(polled(pipe.as_fd()), libc::POLLIN);
        pipe.clear();
        assert_eq!(polled(pipe.as_fd()), 0);
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
        // SAFETY: no memory is involved; the descriptor is new; a live structure.
        let set = unsafe {
            let set = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let interest = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
            let mut interest = libc::epoll_event { events: interest, u64: 0 };
            let (fd, member) = (set.as_raw_fd(), pipe.as_fd().as_raw_fd());
            assert_eq!(libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, member, &mut interest), 0);
            set
        };
        let events = || {
            let mut ready = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one.
            unsafe { libc::epoll_wait(set.as_raw_fd(), &mut ready, 1, 0) }
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

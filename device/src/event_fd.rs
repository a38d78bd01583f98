//! A file descriptor that tells sleeping threads that a queue is not empty.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::ResourceError;

/// An eventfd used as one bit: readable while the bit is set. It is created blocking, so that an
/// application may choose `O_NONBLOCK` itself; nothing here ever blocks on it.
///
/// The owner sets and clears it under the lock of the queue that it stands for.
#[derive(Debug)]
pub(crate) struct EventFd {
    file: File,
}

impl EventFd {
    /// A descriptor with the bit clear, closed on exec.
    ///
    /// # Errors
    /// `Os`: no descriptor is to be had.
    pub(crate) fn new() -> Result<EventFd, ResourceError> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE);
            return Err(ResourceError::Os { what: "eventfd for a queue of events", errno });
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(EventFd { file: File::from(owned) })
    }

    /// Sets the bit; those who wait are woken even if it is set already.
    pub(crate) fn set(&self) {
        // The counter blocks or fails only after 2^64 - 2 writes without a clear.
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
    }

    /// Clears the bit.
    pub(crate) fn clear(&self) {
        // The application may have read the descriptor itself: reading it again would block.
        if self.is_set() {
            let _ = (&self.file).read(&mut [0; 8]);
        }
    }

    /// Whether the descriptor is readable.
    pub(crate) fn is_set(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd is passed, and lives through the call.
        let ready = unsafe { libc::poll(&mut poll, 1, 0) };
        ready == 1 && poll.revents & libc::POLLIN != 0
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_exactly_while_set() {
        let event = EventFd::new().unwrap();
        assert!(!event.is_set());
        event.clear();
        event.set();
        event.set();
        assert!(event.is_set());
        event.clear();
        assert!(!event.is_set());
    }
}

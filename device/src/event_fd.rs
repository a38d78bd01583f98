//! A file descriptor that wakes a thread of the device's own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::ground::error::ResourceError;
use crate::system_call;

/// An eventfd used as one bit: readable while the bit is set. Programs never get it; what they wait for is an
/// [`crate::event_pipe::EventPipe`].
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// A descriptor with the bit clear, closed on exec.
    ///
    /// # Errors
    /// `Os`: no descriptor is to be had.
    pub(crate) fn new() -> Result<EventFd, ResourceError> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE);
            return Err(ResourceError::Os { what: "eventfd to wake a thread", errno });
        }
        // SAFETY: the descriptor was just made, and nothing else has it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sets the bit; those who wait are woken even if it is set already.
    pub(crate) fn set(&self) {
        // The counter refuses only after 2^64 - 2 writes without a clear.
        system_call::write(self.0.as_raw_fd(), &1_u64.to_ne_bytes());
    }

    /// Clears the bit.
    pub(crate) fn clear(&self) {
        system_call::read(self.0.as_raw_fd(), &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::port::wait_readable;

    #[test]
    fn readable_exactly_while_set() {
        let event = EventFd::new().unwrap();
        let is_set = || wait_readable(&[event.as_fd().as_raw_fd()], None, Some(Duration::ZERO)).unwrap();
        assert!(!is_set());
        event.clear();
        event.set();
        event.set();
        assert!(is_set());
        event.clear();
        assert!(!is_set());
    }
}

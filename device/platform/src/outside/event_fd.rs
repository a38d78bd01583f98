//! A file descriptor that wakes a thread of the device's own.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{read, write};

use crate::error::ResourceError;
use crate::outside::files;

/// An eventfd used as one bit: readable while the bit is set. Programs never get it; they wait for an
/// [`EventPipe`](super::event_pipe::EventPipe). Its calls are system calls without the C library, so they are
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outside::wait::wait_readable;

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
}

//! File descriptors that this library makes.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::errno::{Errno, errno};
use super::zeroed::zeroed;

/// The descriptor that a system call has just returned.
///
/// # Errors
/// The system call failed: its errno.
fn new(returned: RawFd) -> Result<OwnedFd, Errno> {
    if returned < 0 {
        return Err(Errno(errno()));
    }
    // SAFETY: the callers pass what a system call that makes descriptors returned, so no other part of the
    // process has it.
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

/// An anonymous file, closed on exec.
///
/// # Errors
/// That of memfd_create(2).
pub(crate) fn anonymous_file(name: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: the name ends with NUL.
    new(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })
}

/// Device and inode of a file.
pub(crate) type FileIdentity = (u64, u64);

/// # Errors
/// EBADF: not a descriptor.
pub(crate) fn identity(descriptor: RawFd) -> Result<FileIdentity, Errno> {
    let mut status: libc::stat = zeroed();
    // SAFETY: a structure of ours is written; a number that is no descriptor is refused.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        return Err(Errno(errno()));
    }
    Ok((status.st_dev, status.st_ino))
}

/// Whether reading never waits.
pub(crate) fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

/// A descriptor that the program gives for a call.
///
/// # Errors
/// EBADF: a negative number.
pub(crate) fn given<'a>(descriptor: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if descriptor < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: it is not -1. The program keeps it open until the call returns; a number that is no descriptor
    // is refused by the system calls that get it.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// A descriptor that the program gives away.
///
/// # Safety
/// It is open, and the program does not use it any more.
pub(crate) unsafe fn given_away(descriptor: RawFd) -> OwnedFd {
    // SAFETY: it is open and its user gives it up, as the caller promises.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

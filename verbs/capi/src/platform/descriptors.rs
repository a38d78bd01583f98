//! File descriptors that this library opens.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::errno::{Errno, errno};
use crate::abi::zeroed::zeroed;

/// Takes the descriptor that a system call has just returned.
///
/// # Errors
/// Fails with the errno of the system call if it failed.
fn new(returned: RawFd) -> Result<OwnedFd, Errno> {
    if returned < 0 {
        return Err(Errno(errno()));
    }
    // SAFETY: the callers pass the result of a system call that makes descriptors, so no other part of the
    // process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

/// Creates an anonymous file, closed on exec.
///
/// # Errors
/// Fails with the errno of memfd_create(2).
pub(crate) fn anonymous_file(name: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: the name ends with NUL.
    new(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })
}

/// Device and inode of a file.
pub(crate) type FileIdentity = (u64, u64);

/// # Errors
/// Fails with EBADF if the number is no descriptor.
pub(crate) fn identity(descriptor: RawFd) -> Result<FileIdentity, Errno> {
    let mut status: libc::stat = zeroed();
    // SAFETY: the kernel writes a local structure; it refuses a number that is no descriptor.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        return Err(Errno(errno()));
    }
    Ok((status.st_dev, status.st_ino))
}

/// Reports whether reading never waits.
pub(crate) fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

/// Borrows a descriptor that the program gives for a call.
///
/// # Errors
/// Fails with EBADF for a negative number.
pub(crate) fn given<'a>(descriptor: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if descriptor < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: it is not -1. The program keeps it open until the call returns; the system calls that get it
    // refuse a number that is no descriptor.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Takes ownership of a descriptor that the program gives away.
///
/// # Safety
/// The descriptor must be open, and the program must not use it any more.
pub(crate) unsafe fn given_away(descriptor: RawFd) -> OwnedFd {
    // SAFETY: it is open and its user gives it up, as the caller promises.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

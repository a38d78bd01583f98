//! System calls of the data path that are no cancellation points.
//!
//! The C library's functions of these names end a thread that was cancelled (pthread_cancel(3)) right there, by unwinding
//! its stack past the locks that the data path holds. `libc::syscall` does not, and costs less: the functions change the
//! thread's state before and after each call in case it is cancelled meanwhile.

use std::ffi::{c_int, c_long};
use std::os::fd::RawFd;
use std::ptr;

/// sendmsg(2).
///
/// # Safety
/// That of the C library's function.
#[inline]
pub(crate) unsafe fn sendmsg(fd: RawFd, message: *const libc::msghdr, flags: c_int) -> c_long {
    // SAFETY: the caller's promise; errno is set as the function does.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) }
}

/// recvmsg(2).
///
/// # Safety
/// That of the C library's function.
#[inline]
pub(crate) unsafe fn recvmsg(fd: RawFd, message: *mut libc::msghdr, flags: c_int) -> c_long {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags) }
}

/// ppoll(2) with the signal mask as it is.
///
/// # Safety
/// `timeout` is null or a live time, which may be changed.
#[inline]
pub(crate) unsafe fn ppoll(entries: &mut [libc::pollfd], timeout: *mut libc::timespec) -> c_long {
    let (mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_ppoll, entries.as_mut_ptr(), entries.len(), timeout, mask, mask_bytes) }
}

/// read(2) into a few bytes.
#[inline]
pub(crate) fn read(fd: RawFd, bytes: &mut [u8]) -> c_long {
    // SAFETY: live bytes.
    unsafe { libc::syscall(libc::SYS_read, fd, bytes.as_mut_ptr(), bytes.len()) }
}

/// write(2) of a few bytes.
#[inline]
pub(crate) fn write(fd: RawFd, bytes: &[u8]) -> c_long {
    // SAFETY: live bytes.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) }
}

/// preadv2(2) that does not wait, whatever the descriptor's flags are. None: this kernel cannot, for this file.
#[inline]
pub(crate) fn read_now(fd: RawFd, bytes: &mut [u8]) -> Option<c_long> {
    let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: one part of live bytes; the position -1 (in both halves) is that of the file.
    let read =
        unsafe { libc::syscall(libc::SYS_preadv2, fd, &raw const part, 1, -1_i64, -1_i64, libc::RWF_NOWAIT) };
    let refused = || std::io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN);
    if read < 0 && refused() { None } else { Some(read) }
}

//! System calls of the data path that are no cancellation points.
//!
//! The C library's functions of these names end a thread that was cancelled (pthread_cancel(3)) during the
//! call, by unwinding its stack past the locks that the data path holds. `libc::syscall` does not, and costs
//! less: the functions change the thread's state before and after each call in case it is cancelled
//! meanwhile.

use std::ffi::{c_int, c_long};
use std::os::fd::RawFd;
use std::ptr;

/// Calls sendmsg(2).
///
/// # Safety
/// As of the C library's function.
#[inline]
pub unsafe fn sendmsg(fd: RawFd, message: *const libc::msghdr, flags: c_int) -> c_long {
    // SAFETY: the caller's promise; errno is set as the function does.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) }
}

/// Calls recvmsg(2).
///
/// # Safety
/// As of the C library's function.
#[inline]
pub unsafe fn recvmsg(fd: RawFd, message: *mut libc::msghdr, flags: c_int) -> c_long {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags) }
}

/// Calls ppoll(2) without changing the signal mask.
///
/// # Safety
/// `timeout` is null or a live time, which may be changed.
#[inline]
pub(crate) unsafe fn ppoll(entries: &mut [libc::pollfd], timeout: *mut libc::timespec) -> c_long {
    let (mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_ppoll, entries.as_mut_ptr(), entries.len(), timeout, mask, mask_bytes) }
}

/// The option of prctl(2) by which a program in a world speaks to its supervisor; the kernel has no such
/// option.
const HINT: libc::c_int = 0x7075_6d69;

/// Sends a hint to the supervisor of a world. Where there is none, the kernel answers EINVAL.
#[cold]
pub(crate) fn hint(kind: u64, value: u64) {
    hint_about(kind, value, 0, 0);
}

/// Sends a hint as [`hint`] does, about the object with a number, and with one more.
#[cold]
pub(crate) fn hint_about(kind: u64, value: u64, object: u64, more: u64) {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_prctl, HINT, kind, value, object, more) };
}

/// Returns the address of the page that the supervisor of a world has mapped for this program; 0: there is
/// none.
#[cold]
pub(crate) fn world_page() -> usize {
    const ASKS: u64 = 2;
    // SAFETY: numbers only.
    let answer = unsafe { libc::syscall(libc::SYS_prctl, HINT, ASKS, 0_u64, 0_u64, 0_u64) };
    usize::try_from(answer).unwrap_or(0)
}

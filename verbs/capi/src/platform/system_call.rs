//! System calls on the descriptors that threads sleep on, and on UDP sockets.
//!
//! The calls go to the kernel by number and not by their names in the C library: a preload that replaces
//! sockets by rsockets has those names and would call this library. They are also no points at which a thread
//! is cancelled.

use std::ffi::{c_int, c_long};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::time::Instant;

use libc::{epoll_event, pollfd, sockaddr_storage, socklen_t, timespec};
use pumice_device::outside;

use crate::platform::errno::{Errno, errno};

/// Returns the result of a system call, or this thread's errno.
fn checked(returned: c_long) -> Result<c_long, Errno> {
    if returned < 0 { Err(Errno(errno())) } else { Ok(returned) }
}

/// Takes a descriptor that a system call has just made.
fn owned(returned: c_long) -> Result<OwnedFd, Errno> {
    let descriptor = checked(returned)? as RawFd;
    // SAFETY: the kernel has just returned it, so no other part of the process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes an eventfd that does not block; `flags` are further flags of eventfd(2).
///
/// # Errors
/// Fails if there are no descriptors.
pub(crate) fn event(flags: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: the arguments are numbers.
    owned(unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags | libc::EFD_NONBLOCK) })
}

/// Makes an eventfd readable.
pub(crate) fn signal(event: BorrowedFd<'_>) {
    let word = 1_u64.to_ne_bytes();
    // SAFETY: eight live bytes; an eventfd that does not block takes them or refuses.
    unsafe { libc::syscall(libc::SYS_write, event.as_raw_fd(), word.as_ptr(), word.len()) };
}

/// Makes an eventfd unreadable.
pub(crate) fn clear(event: BorrowedFd<'_>) {
    let mut word = [0_u8; 8];
    // SAFETY: room for eight bytes; an eventfd that does not block fills them or refuses.
    unsafe { libc::syscall(libc::SYS_read, event.as_raw_fd(), word.as_mut_ptr(), word.len()) };
}

/// Makes an epoll instance, closed on exec.
///
/// # Errors
/// Fails if there are no descriptors.
pub(crate) fn epoll() -> Result<OwnedFd, Errno> {
    // SAFETY: the argument is a number.
    owned(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })
}

/// Calls epoll_ctl(2) for readability of `descriptor`, which is also the event's number.
///
/// # Errors
/// Fails with EEXIST, ENOENT and others of epoll_ctl(2).
pub(crate) fn epoll_change(epoll: BorrowedFd<'_>, operation: c_int, descriptor: RawFd) -> Result<(), Errno> {
    let mut interest = epoll_event { events: libc::EPOLLIN as u32, u64: descriptor as u64 };
    let epoll = epoll.as_raw_fd();
    // SAFETY: a live structure, which the kernel only reads.
    checked(unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, descriptor, &raw mut interest) })?;
    Ok(())
}

/// Calls epoll_pwait(2) without a signal mask, and returns how many of `ready` are filled. A `limit_ms` of -1
/// is for ever.
pub(crate) fn epoll_wait(epoll: BorrowedFd<'_>, ready: &mut [epoll_event], limit_ms: c_int) -> usize {
    let (no_mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    let (epoll, events, room) = (epoll.as_raw_fd(), ready.as_mut_ptr(), ready.len());
    // SAFETY: there is room for this many events; no mask.
    let count =
        unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, events, room, limit_ms, no_mask, mask_bytes) };
    usize::try_from(count).unwrap_or_default()
}

/// Calls poll(2) until an entry is ready or the time is up, and returns the number of ready entries.
///
/// # Errors
/// Fails with EINTR and the other errors of poll(2).
pub(crate) fn poll(entries: &mut [pollfd], until: Option<Instant>) -> Result<usize, Errno> {
    let time = until.map(|until| {
        let left = until.saturating_duration_since(outside::now());
        timespec {
            tv_sec: left.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (no_mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    let (first, count) = (entries.as_mut_ptr(), entries.len());
    // SAFETY: live entries; null or a live time; no mask.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, first, count, time, no_mask, mask_bytes) };
    checked(ready).map(|ready| ready as usize)
}

/// Calls fcntl(2) for flags.
fn flags(descriptor: RawFd, command: c_int) -> Result<c_int, Errno> {
    // SAFETY: the arguments are numbers, and the commands of this file take no other argument.
    checked(unsafe { libc::syscall(libc::SYS_fcntl, descriptor, command) }).map(|flags| flags as c_int)
}

/// Reports whether a program has set O_NONBLOCK.
pub(crate) fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    flags(descriptor.as_raw_fd(), libc::F_GETFL).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// Reports whether a number is that of an open descriptor.
pub(crate) fn is_open(descriptor: RawFd) -> bool {
    flags(descriptor, libc::F_GETFD).is_ok()
}

/// Closes a number that no [`OwnedFd`] of this process owns: one that a forked child has from its parent.
pub(crate) fn close(descriptor: RawFd) {
    // SAFETY: the argument is a number, and by the caller's word no owner of it is left to close it again.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}

/// Makes a UDP socket that does not block, closed on exec.
///
/// # Errors
/// Fails if there are no descriptors, or no such family.
pub(crate) fn udp_socket(family: c_int) -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the arguments are numbers.
    owned(unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) })
}

/// Calls bind(2) with an address in its C form.
///
/// # Errors
/// Fails with the errors of bind(2).
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    address: &sockaddr_storage,
    length: socklen_t,
) -> Result<(), Errno> {
    let length = length.min(size_of::<sockaddr_storage>() as socklen_t);
    // SAFETY: the structure has at least this many bytes.
    checked(unsafe { libc::syscall(libc::SYS_bind, socket.as_raw_fd(), ptr::from_ref(address), length) })?;
    Ok(())
}

/// Calls setsockopt(2).
///
/// # Errors
/// Fails with the errors of setsockopt(2).
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: Option<&[u8]>,
) -> Result<(), Errno> {
    let (bytes, length) = value.map_or((ptr::null(), 0), |value| (value.as_ptr(), value.len()));
    let fd = socket.as_raw_fd();
    // SAFETY: null, or this many live bytes, which the kernel only reads.
    checked(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, option, bytes, length) })?;
    Ok(())
}

/// Calls getsockopt(2), for at most `most` bytes.
///
/// # Errors
/// Fails with the errors of getsockopt(2).
pub(crate) fn option(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    most: usize,
) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0_u8; most];
    let mut length = most as socklen_t;
    let (fd, buffer) = (socket.as_raw_fd(), value.as_mut_ptr());
    // SAFETY: there is room for as many bytes as `length` says; the kernel writes how many it used.
    checked(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, buffer, &raw mut length) })?;
    value.truncate(length as usize);
    Ok(value)
}

//! Creation and closing of sockets, and further calls on one descriptor.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use libc::{off64_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::descriptors::{add, is_rsocket, is_vfork_child, record_process, remove, set_rsocket_set};
use crate::functions::{call, errno, set_errno};

/// Replaces socket(2): creates an rsocket, if it is for TCP.
///
/// # Safety
/// There are no pointers, so no requirements.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let is_tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !flags == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if is_tcp {
        let made = call!(of_librdmacm "rsocket", (domain: c_int, kind: c_int, protocol: c_int) -> c_int);
        if made >= 0 {
            return record_rsocket(made);
        }
        // A socket that librdmacm itself asks for is the system's.
        if errno() != libc::EOPNOTSUPP {
            return made;
        }
    }
    call!(original "socket", (domain: c_int, kind: c_int, protocol: c_int) -> c_int)
}

/// Records a new rsocket.
fn record_rsocket(fd: c_int) -> c_int {
    if add(fd) {
        record_process();
        return fd;
    }
    let _ = call!(of_librdmacm "rclose", (fd: c_int) -> c_int);
    set_errno(libc::EMFILE);
    -1
}

/// Replaces accept(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the requirements.
    unsafe { accept4(fd, address, length, 0) }
}

/// Replaces accept4(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if !is_rsocket(fd) {
        return call!(original "accept4",
            (fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int);
    }
    let accepted =
        call!(of_librdmacm "raccept", (fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int);
    if accepted < 0 {
        return accepted;
    }
    if flags & libc::SOCK_NONBLOCK != 0 {
        let (set, value) = (libc::F_SETFL, c_long::from(libc::O_NONBLOCK));
        let _ = call!(of_librdmacm "rfcntl", (accepted: c_int, set: c_int, value: c_long) -> c_int);
    }
    record_rsocket(accepted)
}

/// Replaces close(2).
///
/// # Safety
/// There are no pointers, so no requirements.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if is_vfork_child() {
        // The descriptor is the child's, and the socket behind it its parent's.
        return call!(original "close", (fd: c_int) -> c_int);
    }
    // librdmacm closes the descriptor itself, which is no rsocket any more then.
    if remove(fd) {
        return call!(of_librdmacm "rclose", (fd: c_int) -> c_int);
    }
    if let Some(set) = set_rsocket_set(fd, None) {
        let _ = call!(of_librdmacm "rclose", (set: c_int) -> c_int);
    }
    call!(original "close", (fd: c_int) -> c_int)
}

fn control(fd: c_int, command: c_int, argument: c_long) -> Option<c_int> {
    if !is_rsocket(fd) {
        return None;
    }
    match command {
        libc::F_GETFL | libc::F_SETFL | libc::F_GETFD | libc::F_SETFD => {
            Some(call!(of_librdmacm "rfcntl", (fd: c_int, command: c_int, argument: c_long) -> c_int))
        }
        _ => {
            set_errno(libc::EOPNOTSUPP);
            Some(-1)
        }
    }
}

/// Replaces fcntl(2). The argument, if there is one, is passed as a third one is.
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    control(fd, command, argument)
        .unwrap_or_else(|| call!(original "fcntl", (fd: c_int, command: c_int, argument: c_long) -> c_int))
}

/// Replaces fcntl(2) under the name that new programs call.
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    control(fd, command, argument)
        .unwrap_or_else(|| call!(original "fcntl64", (fd: c_int, command: c_int, argument: c_long) -> c_int))
}

/// Replaces ioctl(2): for rsockets FIONBIO, and FIONREAD up to a page.
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if !is_rsocket(fd) {
        return call!(original "ioctl", (fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int);
    }
    if argument.is_null() {
        set_errno(libc::EFAULT);
        return -1;
    }
    let number = argument.cast::<c_int>();
    match request {
        libc::FIONBIO => {
            // SAFETY: the pointer is to the caller's variable.
            let flag = if unsafe { number.read() } != 0 { libc::O_NONBLOCK } else { 0 };
            control(fd, libc::F_SETFL, flag.into()).unwrap_or(-1)
        }
        libc::FIONREAD => {
            const PAGE: usize = 4096;
            let mut page = [0_u8; PAGE];
            let (buffer, length, flags) =
                (page.as_mut_ptr().cast::<c_void>(), PAGE, libc::MSG_PEEK | libc::MSG_DONTWAIT);
            let there = call!(of_librdmacm "rrecv",
                (fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t);
            // SAFETY: the pointer is to the caller's variable.
            unsafe { number.write(there.max(0) as c_int) };
            0
        }
        _ => {
            set_errno(libc::ENOTTY);
            -1
        }
    }
}

/// Refuses to make a second descriptor of an rsocket.
fn refuse_copy() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// Replaces dup(2).
///
/// # Safety
/// There are no pointers, so no requirements.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    if is_rsocket(fd) { refuse_copy() } else { call!(original "dup", (fd: c_int) -> c_int) }
}

/// Replaces dup2(2).
///
/// # Safety
/// There are no pointers, so no requirements.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: there are no pointers.
    if fd == to { fd } else { unsafe { dup3(fd, to, 0) } }
}

/// Replaces dup3(2).
///
/// # Safety
/// There are no pointers, so no requirements.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if is_rsocket(fd) {
        return refuse_copy();
    }
    if is_rsocket(to) {
        // SAFETY: there are no pointers.
        unsafe { close(to) };
    }
    call!(original "dup3", (fd: c_int, to: c_int, flags: c_int) -> c_int)
}

/// Copies a file as sendfile(2) does, a page at a time.
fn copy_file(to: c_int, from: c_int, offset: *mut off64_t, length: size_t) -> ssize_t {
    let mut page = [0_u8; 1 << 16];
    let mut done = 0;
    while done < length {
        let (buffer, most) = (page.as_mut_ptr().cast::<c_void>(), (length - done).min(page.len()));
        let got = if offset.is_null() {
            call!(original "read", (from: c_int, buffer: *mut c_void, most: size_t) -> ssize_t)
        } else {
            // SAFETY: the pointer is to the caller's variable; the buffer has room for this many bytes.
            unsafe { libc::pread64(from, buffer, most, *offset) }
        };
        let Ok(got @ 1..) = usize::try_from(got) else {
            return if done > 0 || got == 0 { done as ssize_t } else { -1 };
        };
        let sent = call!(of_librdmacm "rwrite", (to: c_int, buffer: *mut c_void, got: size_t) -> ssize_t);
        let Ok(sent_bytes) = usize::try_from(sent) else {
            return if done > 0 { done as ssize_t } else { -1 };
        };
        done += sent_bytes;
        if offset.is_null() {
            if sent_bytes < got {
                // Bytes that were read and not sent are read again. SAFETY: no memory is involved.
                unsafe { libc::lseek64(from, sent_bytes as off64_t - got as off64_t, libc::SEEK_CUR) };
                break;
            }
        } else {
            // SAFETY: the pointer is to the caller's variable.
            unsafe { *offset += sent_bytes as off64_t };
        }
        if sent_bytes < got {
            break;
        }
    }
    done as ssize_t
}

/// Replaces sendfile(2).
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    length: size_t,
) -> ssize_t {
    if is_rsocket(to) {
        return copy_file(to, from, offset, length);
    }
    call!(original "sendfile", (to: c_int, from: c_int, offset: *mut off64_t, length: size_t) -> ssize_t)
}

/// Replaces sendfile(2) under its other name.
///
/// # Safety
/// The requirements are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller keeps the requirements; here both functions have the same offsets.
    unsafe { sendfile(to, from, offset, length) }
}

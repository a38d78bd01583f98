//! Sockets come and go, and what else there is to do with one.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use libc::{off64_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::borrower::{is_borrower, note_process};
use crate::descriptors::{add, is_rsocket, put_behind, remove};
use crate::functions::{call, errno, set_errno};

/// socket(2): an rsocket, if it is for TCP.
///
/// # Safety
/// No pointers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let is_tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !flags == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if is_tcp {
        let made = call!(of_librdmacm "rsocket", (domain: c_int, kind: c_int, protocol: c_int) -> c_int);
        if made >= 0 {
            return keep(made);
        }
        // One that librdmacm itself asks for is the system's.
        if errno() != libc::EOPNOTSUPP {
            return made;
        }
    }
    call!(original "socket", (domain: c_int, kind: c_int, protocol: c_int) -> c_int)
}

/// Remembers a new rsocket.
fn keep(fd: c_int) -> c_int {
    if add(fd) {
        note_process();
        return fd;
    }
    let _ = call!(of_librdmacm "rclose", (fd: c_int) -> c_int);
    set_errno(libc::EMFILE);
    -1
}

/// accept(2).
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promises are handed on.
    unsafe { accept4(fd, address, length, 0) }
}

/// accept4(2).
///
/// # Safety
/// That of the C library's function.
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
    keep(accepted)
}

/// close(2).
///
/// # Safety
/// No pointers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if is_borrower() {
        // The descriptor is the child's, and what stands behind it its parent's.
        return call!(original "close", (fd: c_int) -> c_int);
    }
    // It is closed as a descriptor on the way, and then it is none of ours any more.
    if remove(fd) {
        return call!(of_librdmacm "rclose", (fd: c_int) -> c_int);
    }
    if let Some(set) = put_behind(fd, None) {
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

/// fcntl(2). The argument, if there is one, is where a third one is.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    control(fd, command, argument)
        .unwrap_or_else(|| call!(original "fcntl", (fd: c_int, command: c_int, argument: c_long) -> c_int))
}

/// fcntl(2), as new programs call it.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    control(fd, command, argument)
        .unwrap_or_else(|| call!(original "fcntl64", (fd: c_int, command: c_int, argument: c_long) -> c_int))
}

/// ioctl(2): of rsockets FIONBIO, and FIONREAD up to a page.
///
/// # Safety
/// That of the C library's function.
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
            // SAFETY: the caller's variable.
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
            // SAFETY: the caller's variable.
            unsafe { number.write(there.max(0) as c_int) };
            0
        }
        _ => {
            set_errno(libc::ENOTTY);
            -1
        }
    }
}

/// A second descriptor of an rsocket is not to be had.
fn refuse_copy() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

/// dup(2).
///
/// # Safety
/// No pointers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    if is_rsocket(fd) { refuse_copy() } else { call!(original "dup", (fd: c_int) -> c_int) }
}

/// dup2(2).
///
/// # Safety
/// No pointers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: no pointers.
    if fd == to { fd } else { unsafe { dup3(fd, to, 0) } }
}

/// dup3(2).
///
/// # Safety
/// No pointers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if is_rsocket(fd) {
        return refuse_copy();
    }
    if is_rsocket(to) {
        // SAFETY: no pointers.
        unsafe { close(to) };
    }
    call!(original "dup3", (fd: c_int, to: c_int, flags: c_int) -> c_int)
}

/// sendfile(2): a page at a time.
fn copy_file(to: c_int, from: c_int, offset: *mut off64_t, length: size_t) -> ssize_t {
    let mut page = [0_u8; 1 << 16];
    let mut done = 0;
    while done < length {
        let (buffer, most) = (page.as_mut_ptr().cast::<c_void>(), (length - done).min(page.len()));
        let got = if offset.is_null() {
            call!(original "read", (from: c_int, buffer: *mut c_void, most: size_t) -> ssize_t)
        } else {
            // SAFETY: the caller's variable; room for so many bytes.
            unsafe { libc::pread64(from, buffer, most, *offset) }
        };
        let Ok(got @ 1..) = usize::try_from(got) else {
            return if done > 0 || got == 0 { done as ssize_t } else { -1 };
        };
        let sent = call!(of_librdmacm "rwrite", (to: c_int, buffer: *mut c_void, got: size_t) -> ssize_t);
        let Ok(went) = usize::try_from(sent) else { return if done > 0 { done as ssize_t } else { -1 } };
        done += went;
        if offset.is_null() {
            if went < got {
                // What was read and did not go is read again.
                // SAFETY: no memory is involved.
                unsafe { libc::lseek64(from, went as off64_t - got as off64_t, libc::SEEK_CUR) };
                break;
            }
        } else {
            // SAFETY: the caller's variable.
            unsafe { *offset += went as off64_t };
        }
        if went < got {
            break;
        }
    }
    done as ssize_t
}

/// sendfile(2).
///
/// # Safety
/// That of the C library's function.
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

/// sendfile(2), by its other name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    length: size_t,
) -> ssize_t {
    // SAFETY: the caller's promises are handed on; here both have the same offsets.
    unsafe { sendfile(to, from, offset, length) }
}

//! Reading and writing.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};

use super::{given, one, show};
use crate::ground::cancellation::blocking;
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED};
use crate::ground::outcome::{TRY_AGAIN, attempt};
use crate::rsocket::pieces::some_or;
use crate::rsocket::reentry::Inside;
use crate::rsocket::region::{Buffers, buffers};
use crate::rsocket::table::{Socket, socket};

pub(crate) unsafe extern "C-unwind" fn rrecv(
    descriptor: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rrecvfrom(descriptor, buf, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

pub(crate) unsafe extern "C-unwind" fn rrecvfrom(
    descriptor: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> isize {
    in_attempts(|moved| {
        // SAFETY: the caller's promise.
        unsafe { receive(descriptor, buffers(&one(buf, len), 1)?, moved, flags, src_addr, addrlen) }
    })
}

pub(crate) unsafe extern "C-unwind" fn rrecvmsg(descriptor: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    in_attempts(|moved| {
        // SAFETY: the caller's promise.
        unsafe {
            let msg = msg.as_mut().ok_or(Errno(libc::EFAULT))?;
            let parts = c_int::try_from(msg.msg_iovlen).map_err(|_| INVALID)?;
            let list = buffers(msg.msg_iov, parts)?;
            let received =
                receive(descriptor, list, moved, flags, msg.msg_name.cast(), &mut msg.msg_namelen)?;
            // Nothing is ever said beside the data.
            msg.msg_controllen = 0;
            msg.msg_flags = 0;
            Ok(received)
        }
    })
}

pub(crate) unsafe extern "C-unwind" fn rread(descriptor: c_int, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rrecv(descriptor, buf, count, 0) }
}

pub(crate) unsafe extern "C-unwind" fn rreadv(descriptor: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    let nowhere = std::ptr::null_mut();
    in_attempts(|moved| {
        // SAFETY: the caller's promise.
        unsafe { receive(descriptor, buffers(iov, iovcnt)?, moved, 0, nowhere, std::ptr::null_mut()) }
    })
}

pub(crate) unsafe extern "C-unwind" fn rsend(
    descriptor: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rsendto(descriptor, buf, len, flags, std::ptr::null(), 0) }
}

pub(crate) unsafe extern "C-unwind" fn rsendto(
    descriptor: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> isize {
    in_attempts(|moved| {
        // SAFETY: the caller's promise.
        unsafe { send(descriptor, buffers(&one(buf, len), 1)?, moved, flags, dest_addr, addrlen) }
    })
}

/// What is said beside the data (credentials, descriptors) cannot be sent: EOPNOTSUPP.
pub(crate) unsafe extern "C-unwind" fn rsendmsg(
    descriptor: c_int,
    msg: *const msghdr,
    flags: c_int,
) -> isize {
    in_attempts(|moved| {
        // SAFETY: the caller's promise.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno(libc::EFAULT))?;
            if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
                return Err(NOT_SUPPORTED);
            }
            let parts = c_int::try_from(msg.msg_iovlen).map_err(|_| INVALID)?;
            send(descriptor, buffers(msg.msg_iov, parts)?, moved, flags, msg.msg_name.cast(), msg.msg_namelen)
        }
    })
}

pub(crate) unsafe extern "C-unwind" fn rwrite(descriptor: c_int, buf: *const c_void, count: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rsend(descriptor, buf, count, 0) }
}

pub(crate) unsafe extern "C-unwind" fn rwritev(descriptor: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    in_attempts(|moved| {
        // SAFETY: the caller's promise.
        unsafe { send(descriptor, buffers(iov, iovcnt)?, moved, 0, std::ptr::null(), 0) }
    })
}

/// Makes attempts until one has an outcome; each gets how many bytes those before have moved.
#[inline(always)]
pub(super) fn in_attempts<F: FnMut(&mut usize) -> Result<isize, Errno>>(mut one: F) -> isize {
    const { assert!(!std::mem::needs_drop::<F>(), "what the closure owns would be lost with the thread") };
    let mut moved = 0;
    blocking(isize::from(TRY_AGAIN), || attempt(|| one(&mut moved)))
}

/// Goes on with what earlier attempts have left of a list: how many bytes all of them have moved.
///
/// # Safety
/// The program's buffers.
///
/// # Errors
/// Those of `step`, unless something was moved. RESTART, whatever was.
pub(super) unsafe fn go_on(
    list: &[iovec],
    moved: &mut usize,
    step: impl FnOnce(&mut Buffers<'_>) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { Buffers::new(list) };
    buffers.skip(*moved);
    let (before, left) = (*moved, buffers.left());
    let outcome = step(&mut buffers);
    *moved = before + (left - buffers.left());
    match outcome {
        Ok(now) => Ok(before + now),
        Err(errno) => some_or(before, errno),
    }
}

/// Sends from buffers; a datagram goes to an address, or the one that the socket is connected to.
///
/// # Safety
/// The program's buffers, and its address.
unsafe fn send(
    descriptor: c_int,
    list: &[iovec],
    moved: &mut usize,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> Result<isize, Errno> {
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe {
        let sent = match socket(descriptor)? {
            // As for TCP: where to is known already.
            Socket::Stream(stream) => go_on(list, moved, |from| stream.send(from, flags))?,
            Socket::Datagram(datagram) => {
                let to = if address.is_null() { None } else { Some(given(address, length)?) };
                datagram.send(&mut Buffers::new(list), flags, to)?
            }
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        };
        Ok(sent as isize)
    }
}

/// Receives into buffers: how much, and where from if it is a datagram.
///
/// # Safety
/// The program's buffers, and its room for an address.
unsafe fn receive(
    descriptor: c_int,
    list: &[iovec],
    moved: &mut usize,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<isize, Errno> {
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe {
        match socket(descriptor)? {
            Socket::Stream(stream) => {
                let received = go_on(list, moved, |into| stream.receive(into, flags))?;
                if let Some(peer) = stream.addresses().1.filter(|_| !address.is_null()) {
                    show(peer, address, length);
                }
                Ok(received as isize)
            }
            Socket::Datagram(datagram) => {
                let (received, from) = datagram.receive(&mut Buffers::new(list), flags)?;
                show(from, address, length);
                Ok(received as isize)
            }
            Socket::Epoll(_) => Err(Errno(libc::ENOTSOCK)),
        }
    }
}

//! The calls of programs, and how they name sockets, addresses and buffers.

pub(crate) mod connection;
pub(crate) mod data;
pub(crate) mod mapping;
pub(crate) mod name;
pub(crate) mod option;

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use libc::{iovec, sockaddr, socklen_t};

use super::stream_socket::StreamSocket;
use super::table::{Socket, socket};
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED};
use crate::rdma_cm::address;

/// An open stream.
fn stream(descriptor: c_int) -> Result<Arc<StreamSocket>, Errno> {
    match socket(descriptor)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(NOT_SUPPORTED),
        Socket::Epoll(_) => Err(Errno(libc::ENOTSOCK)),
    }
}

/// A program's address.
///
/// # Safety
/// Null, or as many bytes as are said.
unsafe fn given(address: *const sockaddr, length: socklen_t) -> Result<SocketAddr, Errno> {
    if address.is_null() || (length as usize) < size_of::<libc::sockaddr_in>() {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise.
    let family = c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() });
    if family == libc::AF_INET6 && (length as usize) < size_of::<libc::sockaddr_in6>() {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise.
    unsafe { address::from_c(address) }
}

/// Shows the program an address, as much of it as there is room for.
///
/// # Safety
/// Null, or as much room as the length says.
unsafe fn show(shown: SocketAddr, address: *mut sockaddr, length: *mut socklen_t) {
    if length.is_null() {
        return;
    }
    let c = address::to_c(shown);
    let all = if shown.is_ipv4() { size_of::<libc::sockaddr_in>() } else { size_of::<libc::sockaddr_in6>() };
    // SAFETY: the caller's promise.
    unsafe {
        if !address.is_null() {
            let bytes = all.min(*length as usize);
            std::ptr::copy_nonoverlapping((&raw const c).cast::<u8>(), address.cast(), bytes);
        }
        *length = all as socklen_t;
    }
}

/// One buffer of the program's.
const fn one(buf: *const c_void, len: usize) -> iovec {
    iovec { iov_base: buf.cast_mut(), iov_len: len }
}

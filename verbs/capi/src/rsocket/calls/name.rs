//! Addresses of both ends.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{sockaddr, socklen_t};

use super::show;
use crate::ground::errno::Errno;
use crate::ground::outcome::number;
use crate::rsocket::stream_socket::Stage;
use crate::rsocket::table::{Socket, socket};

pub(crate) unsafe extern "C" fn rgetpeername(
    descriptor: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    number(|| {
        let peer = match socket(descriptor)? {
            Socket::Stream(stream) => {
                stream.addresses().1.filter(|_| stream.lock().stage == Stage::Connected)
            }
            Socket::Datagram(datagram) => datagram.peer(),
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        };
        // SAFETY: the caller's promise.
        unsafe { show(peer.ok_or(Errno(libc::ENOTCONN))?, addr, addrlen) };
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rgetsockname(
    descriptor: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    number(|| {
        let own = match socket(descriptor)? {
            Socket::Stream(stream) => stream.addresses().0.unwrap_or_else(|| nowhere(stream.family)),
            Socket::Datagram(datagram) => datagram.own()?,
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        };
        // SAFETY: the caller's promise.
        unsafe { show(own, addr, addrlen) };
        Ok(0)
    })
}

/// The address of a family that says nothing.
fn nowhere(family: c_int) -> SocketAddr {
    if family == libc::AF_INET6 {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

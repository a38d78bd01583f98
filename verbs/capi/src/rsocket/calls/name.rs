//! Addresses of both ends.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::socklen_t;
use pumice_calls::Call;

use super::room::OutputPointer;
use crate::entry::outcome::sockets::number;
use crate::platform::errno::Errno;
use crate::rsocket::sockets::stream::StreamStage;
use crate::rsocket::sockets::table::{Socket, socket};

pub(crate) extern "C" fn rgetpeername(
    descriptor: c_int,
    addr: OutputPointer,
    addrlen: Option<&mut socklen_t>,
) -> c_int {
    number(Call::rgetpeername, || {
        let peer = match socket(descriptor)? {
            Socket::Stream(stream) => {
                stream.addresses().1.filter(|_| stream.lock().stage == StreamStage::Connected)
            }
            Socket::Datagram(datagram) => datagram.peer(),
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        };
        addr.show_address(peer.ok_or(Errno(libc::ENOTCONN))?, addrlen);
        Ok(0)
    })
}

pub(crate) extern "C" fn rgetsockname(
    descriptor: c_int,
    addr: OutputPointer,
    addrlen: Option<&mut socklen_t>,
) -> c_int {
    number(Call::rgetsockname, || {
        let own = match socket(descriptor)? {
            Socket::Stream(stream) => stream.addresses().0.unwrap_or_else(|| unspecified(stream.family)),
            Socket::Datagram(datagram) => datagram.own()?,
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        };
        addr.show_address(own, addrlen);
        Ok(0)
    })
}

/// Returns the unspecified address of a family.
fn unspecified(family: c_int) -> SocketAddr {
    if family == libc::AF_INET6 {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

//! Sockets from the first call to the last.

use std::ffi::c_int;
use std::sync::Arc;

use libc::socklen_t;
use pumice_calls::Call;
use pumice_device::outside::lineage::borrows_memory;

use super::room::{RoomPointer, stream};
use crate::ground::cancellation::blocking;
use crate::ground::errno::{Errno, NOT_SUPPORTED};
use crate::ground::outcome::TRY_AGAIN;
use crate::ground::outcome::sockets::{attempt, not_for_the_library, number};
use crate::ground::system_call::close;
use crate::rdma_cm::address::socket_address::AddressPointer;
use crate::rsocket::parts::options::Options;
use crate::rsocket::parts::reentry::{Inside, is_inside};
use crate::rsocket::sockets::at_exit;
use crate::rsocket::sockets::datagram::DatagramSocket;
use crate::rsocket::sockets::stream::StreamSocket;
use crate::rsocket::sockets::table::{self, Removed, Socket, socket};

/// socket(2): for streams (TCP) and datagrams (UDP) of IPv4 and IPv6.
pub(crate) extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // A socket of the library's own.
    if is_inside() {
        return not_for_the_library(NOT_SUPPORTED);
    }
    number(Call::rsocket, || {
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let _inside = Inside::enter();
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return Err(NOT_SUPPORTED);
        }
        let mut options = Options::default();
        if flags & libc::SOCK_NONBLOCK != 0 {
            options.status_flags |= libc::O_NONBLOCK;
        }
        if flags & libc::SOCK_CLOEXEC != 0 {
            options.descriptor_flags = libc::FD_CLOEXEC;
        }
        let (descriptor, socket) = match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                let stream = Arc::new(StreamSocket::new(domain, options)?);
                (stream.descriptor(), Socket::Stream(stream))
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                let datagram = Arc::new(DatagramSocket::new(domain, options)?);
                (datagram.descriptor(), Socket::Datagram(datagram))
            }
            _ => return Err(NOT_SUPPORTED),
        };
        table::insert(descriptor, socket);
        at_exit::once();
        Ok(descriptor)
    })
}

pub(crate) extern "C" fn rbind(descriptor: c_int, addr: AddressPointer, addrlen: socklen_t) -> c_int {
    number(Call::rbind, || {
        let _inside = Inside::enter();
        let to = addr.parse_within(addrlen)?;
        match socket(descriptor)? {
            Socket::Stream(stream) => stream.bind(to)?,
            Socket::Datagram(datagram) => datagram.bind(to)?,
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        }
        Ok(0)
    })
}

pub(crate) extern "C" fn rlisten(descriptor: c_int, backlog: c_int) -> c_int {
    number(Call::rlisten, || {
        let _inside = Inside::enter();
        stream(descriptor)?.listen(backlog)?;
        Ok(0)
    })
}

pub(crate) extern "C-unwind" fn raccept(
    descriptor: c_int,
    addr: RoomPointer,
    mut addrlen: Option<&mut socklen_t>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::raccept, || {
            let _inside = Inside::enter();
            let (accepted, peer) = stream(descriptor)?.accept(0)?;
            if let Some(peer) = peer {
                addr.show_address(peer, addrlen.as_deref_mut());
            }
            Ok(accepted)
        })
    })
}

pub(crate) extern "C-unwind" fn rconnect(
    descriptor: c_int,
    addr: AddressPointer,
    addrlen: socklen_t,
) -> c_int {
    let mut asked = false;
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::rconnect, || {
            let _inside = Inside::enter();
            let peer = addr.parse_within(addrlen)?;
            match socket(descriptor)? {
                Socket::Stream(stream) => stream.connect(peer, &mut asked)?,
                Socket::Datagram(datagram) => datagram.connect(peer)?,
                Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
            }
            Ok(0)
        })
    })
}

pub(crate) extern "C" fn rshutdown(descriptor: c_int, how: c_int) -> c_int {
    number(Call::rshutdown, || {
        let _inside = Inside::enter();
        stream(descriptor)?.shutdown(how)?;
        Ok(0)
    })
}

pub(crate) extern "C" fn rclose(descriptor: c_int) -> c_int {
    if borrows_memory() {
        // A child of vfork that closes what it does not need: the socket is its parent's, and stays.
        close(descriptor);
        return 0;
    }
    number(Call::rclose, || {
        let _inside = Inside::enter();
        match table::remove(descriptor).ok_or(Errno(libc::EBADF))? {
            Removed::Own(Socket::Stream(stream)) => stream.close(),
            Removed::Own(Socket::Datagram(datagram)) => datagram.close(),
            Removed::Own(Socket::Epoll(interest)) => interest.close(),
            Removed::Inherited => {}
        }
        Ok(0)
    })
}

//! Creation, connection and closing of sockets.

use std::ffi::c_int;
use std::sync::Arc;

use libc::socklen_t;
use pumice_calls::Call;
use pumice_device::outside::fork_generation::shares_parent_memory;

use super::room::{OutputPointer, stream};
use crate::entry::outcome::TRY_AGAIN;
use crate::entry::outcome::sockets::{attempt, number, refuse_library_call};
use crate::platform::cancellation::blocking;
use crate::platform::errno::{Errno, NOT_SUPPORTED};
use crate::platform::system_call::close;
use crate::rdma_cm::address::socket_address::AddressPointer;
use crate::rsocket::parts::options::SocketOptions;
use crate::rsocket::parts::reentry::{ReentryGuard, is_inside};
use crate::rsocket::sockets::at_exit;
use crate::rsocket::sockets::datagram::DatagramSocket;
use crate::rsocket::sockets::stream::StreamSocket;
use crate::rsocket::sockets::table::{self, RemovedSocket, Socket, socket};

/// Creates a socket as socket(2) does: for streams (TCP) and datagrams (UDP) of IPv4 and IPv6.
pub(crate) extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // The socket is one of the library's own.
    if is_inside() {
        return refuse_library_call(NOT_SUPPORTED);
    }
    number(Call::rsocket, || {
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let _inside = ReentryGuard::enter();
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return Err(NOT_SUPPORTED);
        }
        let mut options = SocketOptions::default();
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
        let _inside = ReentryGuard::enter();
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
        let _inside = ReentryGuard::enter();
        stream(descriptor)?.listen(backlog)?;
        Ok(0)
    })
}

pub(crate) extern "C-unwind" fn raccept(
    descriptor: c_int,
    addr: OutputPointer,
    mut addrlen: Option<&mut socklen_t>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::raccept, || {
            let _inside = ReentryGuard::enter();
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
    let mut requested = false;
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::rconnect, || {
            let _inside = ReentryGuard::enter();
            let peer = addr.parse_within(addrlen)?;
            match socket(descriptor)? {
                Socket::Stream(stream) => stream.connect(peer, &mut requested)?,
                Socket::Datagram(datagram) => datagram.connect(peer)?,
                Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
            }
            Ok(0)
        })
    })
}

pub(crate) extern "C" fn rshutdown(descriptor: c_int, how: c_int) -> c_int {
    number(Call::rshutdown, || {
        let _inside = ReentryGuard::enter();
        stream(descriptor)?.shutdown(how)?;
        Ok(0)
    })
}

pub(crate) extern "C" fn rclose(descriptor: c_int) -> c_int {
    if shares_parent_memory() {
        // A child of vfork closes sockets that it does not need: the socket is its parent's, and stays open.
        close(descriptor);
        return 0;
    }
    number(Call::rclose, || {
        let _inside = ReentryGuard::enter();
        match table::remove(descriptor).ok_or(Errno(libc::EBADF))? {
            RemovedSocket::Own(Socket::Stream(stream)) => stream.close(),
            RemovedSocket::Own(Socket::Datagram(datagram)) => datagram.close(),
            RemovedSocket::Own(Socket::Epoll(interest)) => interest.close(),
            RemovedSocket::Inherited => {}
        }
        Ok(0)
    })
}

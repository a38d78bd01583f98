//! The functions that programs call, and their types for sockets, addresses and values.
//!
//! Creation, connection and closing of sockets, the addresses of both ends, and options.
//!
//! Types that several calls need: the stream of a descriptor, and the program's memory for an address or a
//! value.

use std::ffi::{c_int, c_long, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use libc::{msghdr, socklen_t};
use pumice_calls::Call;
use pumice_device::outside::fork_generation::shares_parent_memory;

use crate::abi::plain::Plain as _;
use crate::entry::TRY_AGAIN;
use crate::entry::arguments::Bytes;
use crate::entry::sockets::{attempt, number, refuse_library_call};
use crate::platform::system_call::close;
use crate::platform::threads::blocking;
use crate::platform::{Errno, NOT_SUPPORTED};
use crate::rdma_cm::address;
use crate::rdma_cm::address::AddressPointer;
use crate::rsocket::parts::event_thread::{ReentryGuard, is_inside, probe_peers};
use crate::rsocket::parts::options::{SOL_RDMA, SocketOptions};
use crate::rsocket::sockets::connecting::HANDLERS;
use crate::rsocket::sockets::datagram::DatagramSocket;
use crate::rsocket::sockets::waiting::{RemovedSocket, Socket, socket};
use crate::rsocket::sockets::{StreamSocket, StreamStage, connecting, waiting};

/// Returns an open stream.
fn stream(descriptor: c_int) -> Result<Arc<StreamSocket>, Errno> {
    match socket(descriptor)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(NOT_SUPPORTED),
        Socket::Epoll(_) => Err(Errno(libc::ENOTSOCK)),
    }
}

/// A program's pointer to memory for an address or a value, as a call gets it: null, or as many bytes as the
/// length that comes with it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct OutputPointer(*mut c_void);

impl OutputPointer {
    const NULL: OutputPointer = OutputPointer(std::ptr::null_mut());

    /// Returns the memory for a name of a message.
    const fn of_name(message: &msghdr) -> OutputPointer {
        OutputPointer(message.msg_name)
    }

    const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes as many bytes as there is room for, and returns their number.
    fn write(self, bytes: &[u8], room: socklen_t) -> socklen_t {
        let length = if self.is_null() { 0 } else { bytes.len().min(room as usize) };
        // SAFETY: the program's memory has at least this many bytes, if any are written.
        unsafe { self.0.cast::<u8>().copy_from(bytes.as_ptr(), length) };
        length as socklen_t
    }

    /// Writes an address to the program's memory, as much of it as there is room for.
    fn show_address(self, shown: SocketAddr, length: Option<&mut socklen_t>) {
        let Some(length) = length else { return };
        let bytes = address::bytes(shown);
        self.write(&bytes, *length);
        *length = bytes.len() as socklen_t;
    }

    /// Writes a value to the program's memory, as much of it as there is room for.
    ///
    /// # Errors
    /// Fails with EFAULT if there is no memory.
    fn show_value(self, bytes: &[u8], length: Option<&mut socklen_t>) -> Result<(), Errno> {
        let length = length.filter(|_| !self.is_null()).ok_or(Errno(libc::EFAULT))?;
        *length = self.write(bytes, *length);
        Ok(())
    }
}

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
        waiting::insert(descriptor, socket);
        connecting::once();
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
        match waiting::remove(descriptor).ok_or(Errno(libc::EBADF))? {
            RemovedSocket::Own(Socket::Stream(stream)) => stream.close(),
            RemovedSocket::Own(Socket::Datagram(datagram)) => datagram.close(),
            RemovedSocket::Own(Socket::Epoll(interest)) => interest.close(),
            RemovedSocket::Inherited => {}
        }
        Ok(0)
    })
}

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

pub(crate) extern "C" fn rsetsockopt(
    descriptor: c_int,
    level: c_int,
    optname: c_int,
    optval: Bytes<'_>,
    optlen: socklen_t,
) -> c_int {
    number(Call::rsetsockopt, || {
        let _inside = ReentryGuard::enter();
        let value = if optval.is_null() { None } else { optval.get(optlen as usize).ok() };
        match socket(descriptor)? {
            Socket::Stream(stream) => set_of_stream(&stream, level, optname, value)?,
            Socket::Datagram(datagram) => datagram.set_option(level, optname, value)?,
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        }
        Ok(0)
    })
}

fn set_of_stream(
    stream: &StreamSocket,
    level: c_int,
    option: c_int,
    value: Option<&[u8]>,
) -> Result<(), Errno> {
    let mut state = stream.lock();
    let connected = !matches!(state.stage, StreamStage::New | StreamStage::Listening);
    state.options.set(level, option, value, connected)?;
    let probes = state.options.keepalive_enabled;
    drop(state);
    if probes {
        probe_peers(HANDLERS)?;
    }
    if let Some(value) = value.and_then(c_int::parse)
        && level != SOL_RDMA
    {
        stream.set_id_option(level, option, value);
    }
    Ok(())
}

pub(crate) extern "C" fn rgetsockopt(
    descriptor: c_int,
    level: c_int,
    optname: c_int,
    optval: OutputPointer,
    optlen: Option<&mut socklen_t>,
) -> c_int {
    number(Call::rgetsockopt, || {
        let _inside = ReentryGuard::enter();
        let value = match socket(descriptor)? {
            Socket::Stream(stream) => show_of_stream(&stream, level, optname)?,
            Socket::Datagram(datagram) => {
                let room = optlen.as_deref().copied().unwrap_or(0);
                datagram.show_option(level, optname, room as usize)?
            }
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        };
        optval.show_value(&value, optlen)?;
        Ok(0)
    })
}

/// Returns the bytes of an option's value.
fn show_of_stream(stream: &StreamSocket, level: c_int, option: c_int) -> Result<Vec<u8>, Errno> {
    let mut state = stream.lock();
    let number = match (level, option) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            state.is_connect_reported |= !matches!(state.stage, StreamStage::Connecting);
            StreamSocket::take_error(&mut state).map_or(0, |Errno(errno)| errno)
        }
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => stream.family,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(state.stage == StreamStage::Listening),
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            /// Length in bytes of a `struct tcp_info`, whose first byte is the state: established, closed.
            const INFO_BYTES: usize = 104;
            let mut info = vec![if state.stage == StreamStage::Connected { 1 } else { 7 }];
            info.resize(INFO_BYTES, 0);
            return Ok(info);
        }
        _ => return state.options.show(level, option),
    };
    Ok(number.to_ne_bytes().to_vec())
}

/// Calls fcntl(2) for the flags of descriptors and of files. The argument is the first of any variable
/// arguments.
pub(crate) extern "C" fn rfcntl(descriptor: c_int, cmd: c_int, arg: c_long) -> c_int {
    number(Call::rfcntl, || {
        let change = |options: &mut SocketOptions| {
            let flags = arg as c_int;
            match cmd {
                libc::F_GETFL => Ok(options.status_flags),
                libc::F_GETFD => Ok(options.descriptor_flags),
                libc::F_SETFL => {
                    let settable = libc::O_NONBLOCK | libc::O_APPEND | libc::O_ASYNC;
                    options.status_flags = options.status_flags & !settable | flags & settable;
                    Ok(0)
                }
                libc::F_SETFD => {
                    options.descriptor_flags = flags & libc::FD_CLOEXEC;
                    Ok(0)
                }
                _ => Err(NOT_SUPPORTED),
            }
        };
        match socket(descriptor)? {
            Socket::Stream(stream) => change(&mut stream.lock().options),
            Socket::Datagram(datagram) => datagram.change_options(change),
            Socket::Epoll(_) => Err(NOT_SUPPORTED),
        }
    })
}

pub(crate) mod data;
pub(crate) mod poll;

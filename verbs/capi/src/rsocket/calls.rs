//! The calls of programs.

use std::ffi::{c_int, c_long, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t};

use super::attendant::probe_peers;
use super::datagram::DatagramSocket;
use super::options::{self, Options, SOL_RDMA};
use super::reentry::{Inside, is_inside};
use super::region::{Buffers, buffers};
use super::stream_socket::{Stage, StreamSocket};
use super::table::{self, Removed, Socket, socket};
use crate::object::zeroed;
use crate::outcome::{Errno, INVALID, NOT_SUPPORTED, count, number};
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
pub(crate) unsafe fn given(address: *const sockaddr, length: socklen_t) -> Result<SocketAddr, Errno> {
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
pub(crate) unsafe fn show(shown: SocketAddr, address: *mut sockaddr, length: *mut socklen_t) {
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

/// The address of a family that says nothing.
fn nowhere(family: c_int) -> SocketAddr {
    if family == libc::AF_INET6 {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

/// socket(2): for streams (TCP) and datagrams (UDP) of IPv4 and IPv6.
pub(crate) unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    number(|| {
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        // A socket of the library's own.
        if is_inside() {
            return Err(NOT_SUPPORTED);
        }
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
        super::at_exit::once();
        Ok(descriptor)
    })
}

pub(crate) unsafe extern "C" fn rbind(descriptor: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        // SAFETY: the caller's promise.
        let to = unsafe { given(addr, addrlen) }?;
        match socket(descriptor)? {
            Socket::Stream(stream) => stream.bind(to)?,
            Socket::Datagram(datagram) => datagram.bind(to)?,
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rlisten(descriptor: c_int, backlog: c_int) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        stream(descriptor)?.listen(backlog)?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn raccept(
    descriptor: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        let (accepted, peer) = stream(descriptor)?.accept(0)?;
        if let Some(peer) = peer {
            // SAFETY: the caller's promise.
            unsafe { show(peer, addr, addrlen) };
        }
        Ok(accepted)
    })
}

pub(crate) unsafe extern "C" fn rconnect(
    descriptor: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        // SAFETY: the caller's promise.
        let peer = unsafe { given(addr, addrlen) }?;
        match socket(descriptor)? {
            Socket::Stream(stream) => stream.connect(peer)?,
            Socket::Datagram(datagram) => datagram.connect(peer)?,
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rshutdown(descriptor: c_int, how: c_int) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        stream(descriptor)?.shutdown(how)?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rclose(descriptor: c_int) -> c_int {
    number(|| {
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

/// Sends from buffers; a datagram goes to an address, or the one that the socket is connected to.
///
/// # Safety
/// The program's buffers, and its address.
unsafe fn send(
    descriptor: c_int,
    list: &[iovec],
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> Result<isize, Errno> {
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe {
        let mut from = Buffers::new(list);
        let sent = match socket(descriptor)? {
            // As for TCP: where to is known already.
            Socket::Stream(stream) => stream.send(&mut from, flags)?,
            Socket::Datagram(datagram) => {
                let to = if address.is_null() { None } else { Some(given(address, length)?) };
                datagram.send(&mut from, flags, to)?
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
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<isize, Errno> {
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe {
        let mut into = Buffers::new(list);
        match socket(descriptor)? {
            Socket::Stream(stream) => {
                let received = stream.receive(&mut into, flags)?;
                if let Some(peer) = stream.addresses().1.filter(|_| !address.is_null()) {
                    show(peer, address, length);
                }
                Ok(received as isize)
            }
            Socket::Datagram(datagram) => {
                let (received, from) = datagram.receive(&mut into, flags)?;
                show(from, address, length);
                Ok(received as isize)
            }
            Socket::Epoll(_) => Err(Errno(libc::ENOTSOCK)),
        }
    }
}

/// One buffer of the program's.
const fn one(buf: *const c_void, len: usize) -> iovec {
    iovec { iov_base: buf.cast_mut(), iov_len: len }
}

pub(crate) unsafe extern "C" fn rrecv(
    descriptor: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rrecvfrom(descriptor, buf, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

pub(crate) unsafe extern "C" fn rrecvfrom(
    descriptor: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> isize {
    // SAFETY: the caller's promise.
    count(|| unsafe { receive(descriptor, buffers(&one(buf, len), 1)?, flags, src_addr, addrlen) })
}

pub(crate) unsafe extern "C" fn rrecvmsg(descriptor: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    count(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let msg = msg.as_mut().ok_or(Errno(libc::EFAULT))?;
            let parts = c_int::try_from(msg.msg_iovlen).map_err(|_| INVALID)?;
            let list = buffers(msg.msg_iov, parts)?;
            let received = receive(descriptor, list, flags, msg.msg_name.cast(), &mut msg.msg_namelen)?;
            // Nothing is ever said beside the data.
            msg.msg_controllen = 0;
            msg.msg_flags = 0;
            Ok(received)
        }
    })
}

pub(crate) unsafe extern "C" fn rread(descriptor: c_int, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rrecv(descriptor, buf, count, 0) }
}

pub(crate) unsafe extern "C" fn rreadv(descriptor: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    let nowhere = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    count(|| unsafe { receive(descriptor, buffers(iov, iovcnt)?, 0, nowhere, std::ptr::null_mut()) })
}

pub(crate) unsafe extern "C" fn rsend(
    descriptor: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rsendto(descriptor, buf, len, flags, std::ptr::null(), 0) }
}

pub(crate) unsafe extern "C" fn rsendto(
    descriptor: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> isize {
    // SAFETY: the caller's promise.
    count(|| unsafe { send(descriptor, buffers(&one(buf, len), 1)?, flags, dest_addr, addrlen) })
}

/// What is said beside the data (credentials, descriptors) cannot be sent: EOPNOTSUPP.
pub(crate) unsafe extern "C" fn rsendmsg(descriptor: c_int, msg: *const msghdr, flags: c_int) -> isize {
    count(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let msg = msg.as_ref().ok_or(Errno(libc::EFAULT))?;
            if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
                return Err(NOT_SUPPORTED);
            }
            let parts = c_int::try_from(msg.msg_iovlen).map_err(|_| INVALID)?;
            send(descriptor, buffers(msg.msg_iov, parts)?, flags, msg.msg_name.cast(), msg.msg_namelen)
        }
    })
}

pub(crate) unsafe extern "C" fn rwrite(descriptor: c_int, buf: *const c_void, count: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { rsend(descriptor, buf, count, 0) }
}

pub(crate) unsafe extern "C" fn rwritev(descriptor: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    // SAFETY: the caller's promise.
    count(|| unsafe { send(descriptor, buffers(iov, iovcnt)?, 0, std::ptr::null(), 0) })
}

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

pub(crate) unsafe extern "C" fn rsetsockopt(
    descriptor: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        match socket(descriptor)? {
            Socket::Stream(stream) => {
                let mut state = stream.lock();
                let connected = !matches!(state.stage, Stage::New | Stage::Listening);
                // SAFETY: the caller's promise.
                unsafe { state.options.set(level, optname, optval, optlen, connected) }?;
                let probes = state.options.keeps_alive;
                drop(state);
                if probes {
                    probe_peers()?;
                }
                if optlen as usize >= size_of::<c_int>() && level != SOL_RDMA {
                    // SAFETY: it was not null, and is so long.
                    stream.tell_option(level, optname, unsafe { optval.cast::<c_int>().read_unaligned() });
                }
            }
            // SAFETY: the caller's promise.
            Socket::Datagram(datagram) => unsafe { datagram.set_option(level, optname, optval, optlen) }?,
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        }
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rgetsockopt(
    descriptor: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        let stream = match socket(descriptor)? {
            Socket::Stream(stream) => stream,
            // SAFETY: the caller's promise.
            Socket::Datagram(datagram) => {
                // SAFETY: the caller's promise.
                unsafe { datagram.show_option(level, optname, optval, optlen) }?;
                return Ok(0);
            }
            Socket::Epoll(_) => return Err(Errno(libc::ENOTSOCK)),
        };
        let mut state = stream.lock();
        // SAFETY: the caller's promise.
        unsafe {
            match (level, optname) {
                (libc::SOL_SOCKET, libc::SO_ERROR) => {
                    state.told |= !matches!(state.stage, Stage::Connecting);
                    let error = StreamSocket::take_error(&mut state).map_or(0, |Errno(errno)| errno);
                    options::write(error, optval, optlen)?;
                }
                (libc::SOL_SOCKET, libc::SO_TYPE) => options::write(libc::SOCK_STREAM, optval, optlen)?,
                (libc::SOL_SOCKET, libc::SO_DOMAIN) => options::write(stream.family, optval, optlen)?,
                (libc::SOL_SOCKET, libc::SO_PROTOCOL) => options::write(libc::IPPROTO_TCP, optval, optlen)?,
                (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                    options::write(c_int::from(state.stage == Stage::Listening), optval, optlen)?;
                }
                (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                    // The first byte is the state: established, closed.
                    let mut info: [u8; 104] = zeroed();
                    info[0] = if state.stage == Stage::Connected { 1 } else { 7 };
                    options::write(info, optval, optlen)?;
                }
                _ => state.options.show(level, optname, optval, optlen)?,
            }
        }
        Ok(0)
    })
}

/// fcntl(2), for the flags of descriptors and of files. The number comes as the first of any arguments.
pub(crate) unsafe extern "C" fn rfcntl(descriptor: c_int, cmd: c_int, arg: c_long) -> c_int {
    number(|| {
        let change = |options: &mut Options| {
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

/// Maps a buffer for the peer to write to: the offset by which it is known there, or -1.
pub(crate) unsafe extern "C" fn riomap(
    descriptor: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = count(|| {
        let _inside = Inside::enter();
        Ok(stream(descriptor)?.map(buf, len, prot, offset)? as isize)
    });
    mapped as off_t
}

pub(crate) unsafe extern "C" fn riounmap(descriptor: c_int, buf: *mut c_void, len: usize) -> c_int {
    number(|| {
        let _inside = Inside::enter();
        stream(descriptor)?.unmap(buf, len)?;
        Ok(0)
    })
}

/// Writes to memory that the peer has mapped.
pub(crate) unsafe extern "C" fn riowrite(
    descriptor: c_int,
    buf: *const c_void,
    length: usize,
    offset: off_t,
    flags: c_int,
) -> usize {
    let written = count(|| {
        let _inside = Inside::enter();
        let from = one(buf, length);
        // SAFETY: the caller's promise.
        unsafe {
            let mut from = Buffers::new(buffers(&from, 1)?);
            Ok(stream(descriptor)?.write_mapped(&mut from, offset as u64, flags)? as isize)
        }
    });
    written as usize
}

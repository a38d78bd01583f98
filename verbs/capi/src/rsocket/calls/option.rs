//! Options, and flags of descriptors and files.

use std::ffi::{c_int, c_long, c_void};

use libc::socklen_t;

use crate::ground::errno::{Errno, NOT_SUPPORTED};
use crate::ground::handles::zeroed;
use crate::ground::outcome::number;
use crate::rsocket::attendant::probe_peers;
use crate::rsocket::options::{self, Options, SOL_RDMA};
use crate::rsocket::reentry::Inside;
use crate::rsocket::stream_socket::{Stage, StreamSocket};
use crate::rsocket::table::{Socket, socket};

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

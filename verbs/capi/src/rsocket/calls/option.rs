//! Options, and flags of descriptors and files.

use std::ffi::{c_int, c_long};

use libc::socklen_t;
use pumice_calls::Call;

use super::room::OutputPointer;
use crate::abi::plain::Plain as _;
use crate::entry::arguments::Bytes;
use crate::entry::outcome::sockets::number;
use crate::platform::errno::{Errno, NOT_SUPPORTED};
use crate::rsocket::parts::event_thread::probe_peers;
use crate::rsocket::parts::options::{SOL_RDMA, SocketOptions};
use crate::rsocket::parts::reentry::ReentryGuard;
use crate::rsocket::sockets::connecting::HANDLERS;
use crate::rsocket::sockets::stream::{StreamSocket, StreamStage};
use crate::rsocket::sockets::table::{Socket, socket};

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

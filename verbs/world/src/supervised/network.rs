//! Sockets: ports are assigned in order, and TCP sends at once.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockaddrLike as _, SockaddrStorage, UnixAddr, bind, getsockname, getsockopt, setsockopt,
    sockopt,
};
use syscalls::Sysno;

use super::port_groups::is_stream;
use super::rows::SyscallClass;
use super::serve::{CallOutcome, UNCHANGED};
use super::shared_ports::FIRST_PORT;
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use crate::error::WorldError;

/// Last port for sockets that ask for any.
const LAST_PORT: u16 = 60_999;
/// Offset of the port in an IPv4 or IPv6 address, in bytes.
const PORT_OFFSET: u64 = 2;

impl Supervisor {
    /// Creates a socket. TCP sends at once: otherwise the time of sending would depend on timers of the
    /// kernel.
    pub(crate) fn make_socket(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [family, kind, ..] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        let is_inet = [libc::AF_INET, libc::AF_INET6].contains(&(family as i32));
        if is_inet
            && kind as i32 & 0xf == libc::SOCK_STREAM
            && let Some(file) = self.file(id, result)
        {
            let _ = setsockopt(&file, sockopt::TcpNoDelay, &true);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    pub(crate) fn file(&self, id: ThreadId, descriptor: i64) -> Option<OwnedFd> {
        let process = self.threads.get(id)?.process;
        self.files.descriptors.get(&process)?.get(i32::try_from(descriptor).ok()?)
    }

    /// Notes that the call may send something by a network: data, a window update, or the end of a
    /// connection.
    pub(crate) fn may_send(&mut self, id: ThreadId, call: &Call) {
        const SEVERAL: [Sysno; 4] = [Sysno::close_range, Sysno::dup2, Sysno::dup3, Sysno::sendfile];
        const ENDS: [Sysno; 2] = [Sysno::close, Sysno::shutdown];
        let [first, ..] = call.arguments();
        if SEVERAL.iter().any(|one| *one as u64 == call.number) {
            self.network.delivery.may_be_pending();
            self.network.port_groups.may_have_changed();
        } else if let Some(file) = self.file(id, i64::from(first as i32)) {
            self.network.delivery.touched(file.as_fd());
            if ENDS.iter().any(|one| *one as u64 == call.number) {
                self.network.port_groups.may_lose(file.as_fd());
            }
        }
    }

    fn next_port(&mut self) -> u16 {
        let port = self.network.next_port;
        self.network.next_port = if port >= LAST_PORT { FIRST_PORT } else { port + 1 };
        port
    }

    /// Assigns the next port to a socket that asks for any.
    pub(crate) fn bind(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, address, length, ..] = call.arguments();
        let tracee = self.tracee(id)?;
        let mut begin = [0; 4];
        let requests_any_port = length >= 4
            && tracee.read(address, &mut begin).is_ok()
            && [libc::AF_INET as u16, libc::AF_INET6 as u16]
                .contains(&u16::from_ne_bytes([begin[0], begin[1]]))
            && begin[2..] == [0, 0];
        self.turns.changes += 1;
        if !requests_any_port {
            let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
            self.has_port(id, &call, result, false);
            self.note(id, &call.name(), result)?;
            return self.go(id, None);
        }
        let port_at = address.wrapping_add(PORT_OFFSET);
        let port = self.next_port();
        tracee.write(port_at, &port.to_be_bytes())?;
        let made = self.make(id, call, UNCHANGED)?;
        let _ = tracee.write(port_at, &[0, 0]);
        let CallOutcome::Result(result) = made else { return Ok(()) };
        if result == -i64::from(libc::EADDRINUSE) {
            // The program chose this port itself for another socket: the call is made once more.
            let again =
                super::tracee::Registers { rip: call.registers.rip - 2, rax: call.number, ..call.registers };
            tracee.set_registers(again)?;
            return self.go(id, None);
        }
        self.has_port(id, &call, result, false);
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Adds a socket that has got a port by `bind`, or by `listen`, to the group that shares the port.
    fn has_port(&mut self, id: ThreadId, call: &Call, result: i64, listens: bool) {
        let [descriptor, ..] = call.arguments();
        let file = self.file(id, i64::from(descriptor as i32)).filter(|_| result == 0);
        // The port of a stream socket is in use from when it listens.
        if file.is_some_and(|file| is_stream(file.as_fd()) == listens) {
            self.join_group(id, descriptor as i32);
        }
    }

    /// Serves `connect` and `listen`.
    pub(crate) fn connect(
        &mut self,
        id: ThreadId,
        call: Call,
        syscall_class: SyscallClass,
    ) -> Result<(), WorldError> {
        self.bind_unbound(id, call)?;
        self.turns.changes += 1;
        self.network.delivery.may_be_pending();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if syscall_class == SyscallClass::Listens {
            self.has_port(id, &call, result, true);
        } else if let Some(file) = self.file(id, i64::from(call.arguments()[0] as i32)) {
            self.network.port_groups.may_lose(file.as_fd());
            let other = getsockopt(&file, sockopt::PeerCredentials).map(|other| other.pid());
            let is_local = getsockname::<UnixAddr>(file.as_raw_fd()).is_ok();
            if result == 0 && is_local && other.is_ok_and(|other| !self.threads.has_leader(other)) {
                self.doubt(id, "connected to a program that is not of the world")?;
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// Assigns the next port to a socket that connects, listens or sends and has no port yet.
    pub(crate) fn bind_unbound(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [descriptor, ..] = call.arguments();
        let Some(file) = self.file(id, i64::from(descriptor as i32)) else { return Ok(()) };
        let Ok(own) = getsockname::<SockaddrStorage>(file.as_raw_fd()) else { return Ok(()) };
        let port = match own.family() {
            Some(AddressFamily::Inet) => own.as_sockaddr_in().map(|own| own.port()),
            Some(AddressFamily::Inet6) => own.as_sockaddr_in6().map(|own| own.port()),
            _ => None,
        };
        if port != Some(0) {
            return Ok(());
        }
        for _ in FIRST_PORT..LAST_PORT {
            let port = self.next_port();
            let address = match own.family() {
                Some(AddressFamily::Inet6) => SockaddrStorage::from(std::net::SocketAddrV6::new(
                    std::net::Ipv6Addr::UNSPECIFIED,
                    port,
                    0,
                    0,
                )),
                _ => {
                    SockaddrStorage::from(std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, port))
                }
            };
            match bind(file.as_raw_fd(), &address) {
                Err(Errno::EADDRINUSE) => {}
                _ => break,
            }
        }
        Ok(())
    }
}

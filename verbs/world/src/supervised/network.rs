//! Sockets: ports are given out in order, and TCP does not wait for more.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockaddrLike as _, SockaddrStorage, bind, getsockname, setsockopt, sockopt,
};
use syscalls::Sysno;

use super::serve::{AS_IT_IS, Made};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use crate::error::WorldError;

/// Ports for sockets that ask for any.
const FIRST_PORT: u16 = 32_768;
const LAST_PORT: u16 = 60_999;
/// Where the port stands in an IPv4 or IPv6 address, in bytes.
const PORT_OFFSET: u64 = 2;

impl Supervisor {
    /// Makes a socket. TCP sends at once: otherwise what it sends when would depend on timers of the kernel.
    pub(crate) fn make_socket(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [family, kind, ..] = call.arguments();
        let Made::Result(result) = self.make(id, call, AS_IT_IS)? else { return Ok(()) };
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

    fn file(&self, id: ThreadId, descriptor: i64) -> Option<OwnedFd> {
        let process = self.threads.get(id)?.process;
        self.descriptors.get(&process)?.get(i32::try_from(descriptor).ok()?)
    }

    /// The call may send something by a network: data, that there is room again, or the end of a connection.
    pub(crate) fn may_send(&mut self, id: ThreadId, call: &Call) {
        const SEVERAL: [Sysno; 4] = [Sysno::close_range, Sysno::dup2, Sysno::dup3, Sysno::sendfile];
        let [first, ..] = call.arguments();
        if SEVERAL.iter().any(|one| *one as u64 == call.number) {
            self.delivery.may_be_pending();
        } else if let Some(file) = self.file(id, i64::from(first as i32)) {
            self.delivery.touched(file.as_fd());
        }
    }

    fn next_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port >= LAST_PORT { FIRST_PORT } else { port + 1 };
        port
    }

    /// A socket that asks for any port gets the next one.
    pub(crate) fn bind(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, address, length, ..] = call.arguments();
        let tracee = self.tracee(id)?;
        let mut begin = [0; 4];
        let asks_for_any = length >= 4
            && tracee.read(address, &mut begin).is_ok()
            && [libc::AF_INET as u16, libc::AF_INET6 as u16]
                .contains(&u16::from_ne_bytes([begin[0], begin[1]]))
            && begin[2..] == [0, 0];
        self.changes += 1;
        if !asks_for_any {
            return self.make_and_go(id, call, AS_IT_IS);
        }
        let port_at = address.wrapping_add(PORT_OFFSET);
        let port = self.next_port();
        tracee.write(port_at, &port.to_be_bytes())?;
        let made = self.make(id, call, AS_IT_IS)?;
        let _ = tracee.write(port_at, &[0, 0]);
        let Made::Result(result) = made else { return Ok(()) };
        if result == -i64::from(libc::EADDRINUSE) {
            // The program chose this port itself for another socket: the call is made once more.
            let again =
                super::tracee::Registers { rip: call.registers.rip - 2, rax: call.number, ..call.registers };
            tracee.set_registers(again)?;
            return self.go(id, None);
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

    /// A socket that connects, listens or sends and has no port yet gets the next one.
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

//! Sockets: ports are assigned in order or shared, and TCP sends at once.
//!
//! Sockets that share a port (SO_REUSEPORT) are a group: the supervisor decides which of them gets a datagram
//! or a connection, because the kernel would choose by a random number of its own. Each change of a group
//! attaches a filter for the number of sockets that it has then. The kernel's tables of sockets say which
//! sockets are still there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use libc::sock_filter;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike as _, SockaddrStorage, UnixAddr, bind, getsockname, getsockopt,
    setsockopt, sockopt,
};
use syscalls::Sysno;

use super::filter::{MOST_INSTRUCTIONS, by_sender, confined};
use super::rows::SyscallClass;
use super::serve::{CallOutcome, UNCHANGED};
use super::state::{FIRST_PORT, Filter, GroupName, PortGroups, inode};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use super::tracee::{Tracee, attach_steering, detach_steering};
use crate::error::WorldError;

/// The kernel's tables of sockets that have a port.
const TABLES: [&str; 4] = ["udp", "udp6", "tcp", "tcp6"];
/// Fields of a line of such a table: the socket's own address, its state, and its inode.
const OWN_ADDRESS: usize = 1;
const STATE: usize = 3;
const INODE: usize = 9;
/// States of a socket that is connected, and of a TCP socket that listens.
const CONNECTED: &str = "01";
const LISTENS: &str = "0A";

impl Supervisor {
    /// Adds a socket that has just got its port, or listens now, if it shares its port.
    fn join_group(&mut self, id: ThreadId, descriptor: i32) {
        let Some(file) = self.file(id, i64::from(descriptor)) else { return };
        if getsockopt(&file, sockopt::ReusePort) != Ok(true) {
            return;
        }
        let process = self.threads.get(id).map(|thread| thread.process);
        if let Some((inode, process)) = inode(file.as_fd()).zip(process) {
            self.network.port_groups.sockets.insert(inode, (process, descriptor));
            self.network.port_groups.is_stale = true;
        }
    }

    /// Attaches filters to the groups that have changed.
    ///
    /// # Errors
    /// The run was to be strict, and a filter cannot be attached.
    pub(crate) fn refresh_groups(&mut self) -> Result<(), WorldError> {
        if !std::mem::take(&mut self.network.port_groups.is_stale) {
            return Ok(());
        }
        let Some(leader) = self.threads.processes.values().find(|one| !one.has_ended).map(|one| one.leader)
        else {
            return Ok(());
        };
        let known = &self.network.port_groups.sockets;
        let mut found: BTreeMap<GroupName, BTreeMap<u64, bool>> = BTreeMap::new();
        for table in TABLES {
            let text = std::fs::read_to_string(format!("/proc/{leader}/net/{table}")).unwrap_or_default();
            for (address, inode, state) in
                bound(table, &text).filter(|(_, inode, _)| known.contains_key(inode))
            {
                found.entry((table, address)).or_default().insert(inode, state == CONNECTED);
            }
        }
        let PortGroups { sockets, groups, early_filters, .. } = &mut self.network.port_groups;
        sockets.retain(|inode, _| found.values().any(|members| members.contains_key(inode)));
        groups.retain(|name, _| found.contains_key(name));
        let mut changed = Vec::new();
        for (name, members) in found {
            let group = groups.entry(name.clone()).or_default();
            if group.members == members {
                continue;
            }
            // A socket that joins a group gives its own filter up.
            let early: Vec<Filter> = members.keys().filter_map(|inode| early_filters.remove(inode)).collect();
            if group.members.is_empty() {
                group.filter = early.into_iter().next().unwrap_or_default();
            }
            group.members = members;
            changed.push(name);
        }
        changed.iter().try_for_each(|name| self.steer(name))
    }

    /// Attaches the filter of a group for the sockets that it has.
    fn steer(&mut self, name: &GroupName) -> Result<(), WorldError> {
        let Some(group) = self.network.port_groups.groups.get(name) else { return Ok(()) };
        let sockets = group.members.len() as u32;
        let connected = group.members.values().filter(|is_connected| **is_connected).count() as u32;
        let filter = match group.filter.as_slice() {
            [] if sockets < 2 => return Ok(()),
            // The kernel leaves connected sockets out, which a filter cannot. If one other is left, the
            // kernel has no choice.
            [] if connected > 0 => Filter::new(),
            [] => by_sender(sockets),
            filter => confined(filter, sockets),
        };
        let first = group.members.keys().next().copied().unwrap_or(0);
        let is_steered = match self.socket_of(first) {
            Some(file) if filter.is_empty() => {
                detach_steering(file.as_raw_fd());
                true
            }
            Some(file) => attach_steering(file.as_raw_fd(), &filter),
            None => false,
        };
        let has_choice = filter.is_empty() && sockets - connected > 1;
        if is_steered && !has_choice {
            return Ok(());
        }
        let Some(id) = self.threads.threads.keys().next().copied() else { return Ok(()) };
        self.doubt(id, "shares a port whose datagrams the kernel distributes by chance")
    }

    /// Duplicates a socket by its inode.
    fn socket_of(&mut self, wanted: u64) -> Option<OwnedFd> {
        let (process, descriptor) = self.network.port_groups.sockets.get(&wanted).copied()?;
        let file = self.files.descriptors.get(&process).and_then(|all| all.get(descriptor));
        if let Some(file) = file.filter(|file| inode(file.as_fd()) == Some(wanted)) {
            return Some(file);
        }
        // The descriptor was closed or duplicated, or its process has ended and another one has the socket.
        let link = format!("socket:[{wanted}]");
        for (process, one) in &self.threads.processes {
            let Some(descriptor) = descriptor_with(one.leader.as_raw(), &link) else { continue };
            self.network.port_groups.sockets.insert(wanted, (*process, descriptor));
            return self.files.descriptors.get(process)?.get(descriptor);
        }
        None
    }

    /// Serves `setsockopt` that attaches a filter to the group of a socket, or detaches it.
    pub(crate) fn attach_filter(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [descriptor, _, option, value, ..] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        let attaches = option as i32 == libc::SO_ATTACH_REUSEPORT_CBPF;
        let filter = if attaches { read_filter(self.tracee(id)?, value) } else { Some(Filter::new()) };
        let file = self.file(id, i64::from(descriptor as i32));
        let socket = file.and_then(|file| inode(file.as_fd()));
        if let Some((filter, socket)) = filter.zip(socket).filter(|_| result == 0) {
            let groups = &mut self.network.port_groups.groups;
            let name = groups.iter().find(|(_, group)| group.members.contains_key(&socket));
            match name.map(|(name, _)| name.clone()) {
                Some(name) => {
                    if let Some(group) = groups.get_mut(&name) {
                        group.filter = filter;
                    }
                    self.steer(&name)?;
                }
                None => {
                    self.network.port_groups.early_filters.insert(socket, filter);
                }
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }

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

/// Returns the sockets of a table that have a port: address, inode and state.
fn bound(table: &str, text: &str) -> impl Iterator<Item = (String, u64, String)> {
    let is_stream = table.starts_with("tcp");
    text.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, state] =
            [OWN_ADDRESS, STATE].map(|field| fields.get(field).map(|text| (*text).to_owned()));
        let inode = fields.get(INODE)?.parse().ok()?;
        Some((address?, inode, state?)).filter(|(_, _, state)| !is_stream || state == LISTENS)
    })
}

/// Returns the descriptor of a process whose link is this.
fn descriptor_with(leader: i32, link: &str) -> Option<i32> {
    let entries = std::fs::read_dir(format!("/proc/{leader}/fd")).ok()?;
    let mut found: Vec<i32> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let is_it = std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == link);
            is_it.then(|| entry.file_name().to_str()?.parse().ok())?
        })
        .collect();
    found.sort_unstable();
    found.first().copied()
}

/// Reports whether a socket is one of connections, which shares its port when it listens.
pub(crate) fn is_stream(file: BorrowedFd<'_>) -> bool {
    getsockopt(&file, sockopt::SockType) == Ok(SockType::Stream)
}

/// Reads a filter from the memory of a program, which the kernel has accepted.
fn read_filter(tracee: Tracee, at: u64) -> Option<Filter> {
    let length = tracee.read_u64(at).ok()? as u16;
    let from = tracee.read_u64(at.wrapping_add(8)).ok()?;
    let mut bytes = vec![0; usize::from(length).min(MOST_INSTRUCTIONS) * 8];
    tracee.read(from, &mut bytes).ok()?;
    let instruction = |bytes: &[u8; 8]| {
        let [a, b, jt, jf, c, d, e, f] = *bytes;
        sock_filter { code: u16::from_ne_bytes([a, b]), jt, jf, k: u32::from_ne_bytes([c, d, e, f]) }
    };
    Some(bytes.as_chunks::<8>().0.iter().map(instruction).collect())
}

/// Last port for sockets that ask for any.
const LAST_PORT: u16 = 60_999;
/// Offset of the port in an IPv4 or IPv6 address, in bytes.
const PORT_OFFSET: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_have_a_port_are_of_a_group() {
        let head = "  sl  local_address rem_address st tx rx tr tm uid timeout inode\n";
        let line = |state: &str, inode: u64| {
            format!("  7: 0100007F:12B9 00000000:0000 {state} 0:0 00:00 0 0 0 {inode} 2 0 0\n")
        };
        let text = format!("{head}{}{}", line("07", 5), line("0A", 6));
        let found = |state: &str, inode| ("0100007F:12B9".to_owned(), inode, state.to_owned());
        assert_eq!(bound("udp", &text).collect::<Vec<_>>(), [found("07", 5), found("0A", 6)]);
        assert_eq!(bound("tcp6", &text).collect::<Vec<_>>(), [found("0A", 6)]);
    }
}

//! Sockets of the model: groups of UDP sockets with their steering, and unix datagrams.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use libc::sock_filter;

use super::filter;
use super::kernel::{Description, DescriptionId, Fd, Kernel, Packet, Pid};

/// Largest number of batches that wait in a UDP socket.
const UDP_QUEUE: usize = 64;
/// Largest number of datagrams that wait in a unix socket, as net.unix.max_dgram_qlen says on most hosts.
const UNIX_QUEUE: usize = 11;

/// Payload of every packet, by which it is recognised wherever it turns up.
pub(super) const PAYLOAD: &[u8] = b"payload!";

/// A socket on a UDP port.
#[derive(Debug)]
pub(crate) struct UdpSocket {
    address: IpAddr,
    port: u16,
    uid: u32,
    inode: u64,
    pub(super) queue: VecDeque<Packet>,
    joined: BTreeSet<IpAddr>,
}

/// The name that a unix socket is bound to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SocketName {
    /// A name that the first user who asks for it may bind.
    Abstract(PathBuf),
    /// A name in a folder.
    Path(PathBuf),
}

#[derive(Debug, Clone)]
pub(super) struct UnixDatagram {
    uid: u32,
    pub(super) bytes: Vec<u8>,
}

/// A unix datagram socket.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    uid: u32,
    pub(super) queue: VecDeque<UnixDatagram>,
}

struct ReuseportGroup {
    members: Vec<DescriptionId>,
    program: Option<Vec<sock_filter>>,
}

impl std::fmt::Debug for ReuseportGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.members)
    }
}

#[derive(Debug, Default)]
pub(super) struct SimNetwork {
    groups: BTreeMap<(IpAddr, u16), ReuseportGroup>,
    names: BTreeMap<SocketName, DescriptionId>,
    /// Model of the kernel's hash, which chooses a socket where no program does: a number that changes.
    pub(super) hash: usize,
}

impl SimNetwork {
    pub(super) fn leave_group(&mut self, id: DescriptionId, socket: &UdpSocket) {
        let key = (socket.address, socket.port);
        let Some(group) = self.groups.get_mut(&key) else { return };
        if let Some(position) = group.members.iter().position(|member| *member == id) {
            // The last socket moves into the gap.
            group.members.swap_remove(position);
        }
        if group.members.is_empty() {
            self.groups.remove(&key);
        }
    }

    /// Notes that a path leads to no socket any more.
    pub(super) fn forget_path(&mut self, path: &Path) {
        self.names.remove(&SocketName::Path(path.to_owned()));
    }

    pub(super) fn forget_names_of(&mut self, id: DescriptionId) {
        self.names.retain(|_, named| *named != id);
    }

    /// Returns the names that are bound: /proc/net/unix shows them to every user.
    pub(super) fn names(&self) -> impl Iterator<Item = &SocketName> {
        self.names.keys()
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Kernel {
    fn udp(&mut self, pid: Pid, fd: Fd) -> io::Result<&mut UdpSocket> {
        let id = self.description_id(pid, fd)?;
        match self.descriptions.get_mut(&id) {
            Some(Description::Udp(socket)) => Ok(socket),
            _ => Err(errno(libc::ENOTSOCK)),
        }
    }

    fn unix(&mut self, id: DescriptionId) -> io::Result<&mut UnixSocket> {
        match self.descriptions.get_mut(&id) {
            Some(Description::Unix(socket)) => Ok(socket),
            _ => Err(errno(libc::ENOTSOCK)),
        }
    }

    /// Makes a UDP socket in the group of an address. Only sockets of one user share a port.
    pub(crate) fn bind_udp(&mut self, pid: Pid, address: IpAddr, port: u16) -> io::Result<Fd> {
        let uid = self.uid(pid);
        let conflicting_holder = self.descriptions.values().any(|each| match each {
            Description::Udp(other) => {
                let meets =
                    other.address == address || other.address.is_unspecified() || address.is_unspecified();
                other.port == port && meets && other.uid != uid
            }
            _ => false,
        });
        if conflicting_holder {
            return Err(errno(libc::EADDRINUSE));
        }
        let (inode, queue, joined) = (self.unique(), VecDeque::new(), BTreeSet::new());
        let socket = UdpSocket { address, port, uid, inode, queue, joined };
        let fd = self.describe(pid, Description::Udp(socket))?;
        let id = self.description_id(pid, fd)?;
        let group = self.network.groups.entry((address, port));
        group.or_insert_with(|| ReuseportGroup { members: Vec::new(), program: None }).members.push(id);
        Ok(fd)
    }

    /// Reports whether a socket that does not share would be refused this address.
    pub(crate) fn is_port_taken(&self, address: IpAddr, port: u16) -> bool {
        let meets = |other: IpAddr| other == address || other.is_unspecified() || address.is_unspecified();
        self.network.groups.keys().any(|(other, on)| *on == port && meets(*other))
    }

    pub(crate) fn udp_inode(&mut self, pid: Pid, fd: Fd) -> io::Result<u64> {
        self.udp(pid, fd).map(|socket| socket.inode)
    }

    pub(crate) fn join_group(&mut self, pid: Pid, fd: Fd, group: IpAddr, joins: bool) -> io::Result<()> {
        let joined = &mut self.udp(pid, fd)?.joined;
        let changed = if joins { joined.insert(group) } else { joined.remove(&group) };
        if changed { Ok(()) } else { Err(errno(libc::EADDRNOTAVAIL)) }
    }

    pub(crate) fn attach_program(&mut self, pid: Pid, fd: Fd, program: &[sock_filter]) -> io::Result<()> {
        let socket = self.udp(pid, fd)?;
        let key = (socket.address, socket.port);
        let group = self.network.groups.get_mut(&key).ok_or_else(|| errno(libc::EINVAL))?;
        group.program = Some(program.to_vec());
        Ok(())
    }

    /// Delivers a batch to this host: to every socket that joined its multicast group, or to the one that the
    /// group's program, or the kernel itself, chooses.
    pub(crate) fn deliver(&mut self, packet: Packet) {
        let (to, port) = (packet.flow.destination, packet.flow.destination_port);
        let chosen: Vec<DescriptionId> = if to.is_multicast() {
            let joined = |socket: &UdpSocket| socket.port == port && socket.joined.contains(&to);
            let all = self.descriptions.iter();
            all.filter(|(_, each)| matches!(each, Description::Udp(socket) if joined(socket)))
                .map(|(id, _)| *id)
                .collect()
        } else {
            self.choose(to, port, &packet.bytes).into_iter().collect()
        };
        if chosen.is_empty() {
            self.lost.push(packet.bytes);
            return;
        }
        for id in chosen {
            let Some(Description::Udp(socket)) = self.descriptions.get_mut(&id) else { continue };
            if socket.queue.len() < UDP_QUEUE {
                socket.queue.push_back(packet.clone());
            } else {
                self.lost.push(packet.bytes.clone());
            }
        }
    }

    fn choose(&mut self, to: IpAddr, port: u16, bytes: &[u8]) -> Option<DescriptionId> {
        let any = IpAddr::from([0, 0, 0, 0]);
        let key = [(to, port), (any, port)].into_iter().find(|key| self.network.groups.contains_key(key))?;
        self.network.hash = self.network.hash.wrapping_add(1);
        let group = self.network.groups.get(&key)?;
        let index = group.program.as_ref().map(|program| filter::run(program, bytes).0 as usize);
        let by_program = index.and_then(|index| group.members.get(index));
        by_program.or_else(|| group.members.get(self.network.hash % group.members.len())).copied()
    }

    pub(crate) fn receive_udp(&mut self, pid: Pid, fd: Fd) -> io::Result<Option<Packet>> {
        let packet = self.udp(pid, fd)?.queue.pop_front();
        let in_hand = packet.as_ref().map(|packet| packet.bytes.clone()).unwrap_or_default();
        self.hold(pid, in_hand);
        Ok(packet)
    }

    /// Notes the packets that a process took out of a socket; it has handled those that it took before.
    fn hold(&mut self, pid: Pid, in_hand: Vec<u8>) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.in_hand = in_hand;
        }
    }

    /// Returns the table of UDP sockets as /proc prints it.
    pub(crate) fn udp_table(&self) -> String {
        let mut text = String::from("  sl  local_address rem_address\n");
        for description in self.descriptions.values() {
            let Description::Udp(socket) = description else { continue };
            let IpAddr::V4(address) = socket.address else { continue };
            let address = u32::from_ne_bytes(address.octets());
            let (port, uid, inode) = (socket.port, socket.uid, socket.inode);
            let _ = writeln!(text, "1: {address:08X}:{port:04X} 0:0 07 0:0 0:0 0 {uid} 0 {inode} 2 0 0");
        }
        text
    }

    /// Reports whether something waits at one of these descriptors.
    pub(crate) fn is_readable(&self, pid: Pid, fds: &[Fd]) -> bool {
        fds.iter().any(|fd| {
            match self.description_id(pid, *fd).ok().and_then(|id| self.descriptions.get(&id)) {
                Some(Description::Udp(socket)) => !socket.queue.is_empty(),
                Some(Description::Unix(socket)) => !socket.queue.is_empty(),
                _ => false,
            }
        })
    }

    pub(crate) fn open_unix(&mut self, pid: Pid) -> io::Result<Fd> {
        let uid = self.uid(pid);
        self.describe(pid, Description::Unix(UnixSocket { uid, queue: VecDeque::new() }))
    }

    pub(crate) fn bind_unix(&mut self, pid: Pid, fd: Fd, name: &SocketName) -> io::Result<()> {
        let id = self.description_id(pid, fd)?;
        match name {
            SocketName::Abstract(_) if self.network.names.contains_key(name) => {
                return Err(errno(libc::EADDRINUSE));
            }
            SocketName::Abstract(_) => {}
            SocketName::Path(path) => self.add_socket_name(pid, path)?,
        }
        self.network.names.insert(name.clone(), id);
        Ok(())
    }

    /// Returns the socket that a name leads to.
    pub(crate) fn find_unix(&self, pid: Pid, name: &SocketName) -> io::Result<DescriptionId> {
        if let SocketName::Path(path) = name {
            self.may_send_to(pid, path)?;
        }
        self.network.names.get(name).copied().ok_or_else(|| errno(libc::ECONNREFUSED))
    }

    /// Sends to the socket of a name. **Invariant**: a payload goes to sockets of the same user only.
    pub(crate) fn send_unix(&mut self, pid: Pid, to: &SocketName, bytes: Vec<u8>) -> io::Result<()> {
        let id = self.find_unix(pid, to)?;
        let uid = self.uid(pid);
        let socket = self.unix(id)?;
        if socket.queue.len() >= UNIX_QUEUE {
            return Err(errno(libc::EAGAIN));
        }
        let leaks = socket.uid != uid && bytes.windows(PAYLOAD.len()).any(|part| part == PAYLOAD);
        socket.queue.push_back(UnixDatagram { uid, bytes });
        if leaks {
            self.violate(format!(
                "process {pid} of user {uid} sent a payload to another user's socket {to:?}"
            ));
        }
        Ok(())
    }

    /// Receives a datagram, with the user who sent it.
    pub(crate) fn receive_unix(&mut self, pid: Pid, fd: Fd) -> io::Result<Option<(u32, Vec<u8>)>> {
        let id = self.description_id(pid, fd)?;
        let came = self.unix(id)?.queue.pop_front();
        self.hold(pid, came.as_ref().map(|datagram| datagram.bytes.clone()).unwrap_or_default());
        Ok(came.map(|datagram| (datagram.uid, datagram.bytes)))
    }
}

//! Multicast groups of a UDP port: one socket per group, bound to the group's address.
//!
//! A socket bound to a unicast address never sees a group's packets, and one bound to the wildcard would
//! leave open whom they were for. A group whose scope is an interface or a link (ff01::, ff02::) is another
//! one on each interface; a device with all addresses of the host has a socket on each.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};

use pumice_platform::outside::interface::{self, Interface};
use socket2::Socket;

use super::config::UdpConfig;
use pumice_platform::udp;
use pumice_platform::udp::unread::has_scope;
use pumice_platform::udp::{PortError, PortReuse};

/// Largest number of groups per port; the kernel's own default is 20 per socket, without a limit on sockets.
const GROUPS_LIMIT: usize = 256;

#[derive(Debug)]
struct JoinedGroup {
    address: IpAddr,
    /// Sockets of the group; several if the group is another one on each interface.
    sockets: Vec<Socket>,
    joins: usize,
}

/// The groups a port has joined.
#[derive(Debug)]
pub(super) struct JoinedGroups {
    bound: IpAddr,
    /// Interface of `bound` if that is an IPv6 address, else 0.
    scope_id: u32,
    port: u16,
    buffer_bytes: usize,
    reuse_port: bool,
    joined: Vec<JoinedGroup>,
    turn: usize,
}

impl JoinedGroups {
    /// Creates an empty set. Tells `socket` which interface IPv6 groups are on, which its address alone does
    /// not.
    pub(super) fn new(socket: &Socket, bound: IpAddr, port: u16, config: &UdpConfig) -> JoinedGroups {
        let mut scope_id = 0;
        if bound.is_ipv6()
            && !bound.is_unspecified()
            && let Some(interface) = owner(bound)
        {
            scope_id = interface.index;
            // Without it a group's packets take the default route: no reason not to open the port.
            let _ = socket.set_multicast_if_v6(scope_id);
        }
        let (buffer_bytes, reuse_port) = (config.buffer_bytes, config.reuse_port);
        JoinedGroups { bound, scope_id, port, buffer_bytes, reuse_port, joined: Vec::new(), turn: 0 }
    }

    /// Interface that IPv6 groups are on; 0 leaves it to the routing table.
    pub(super) fn scope_id(&self) -> u32 {
        self.scope_id
    }

    pub(super) fn join(&mut self, unicast: &Socket, group: IpAddr) -> io::Result<()> {
        if !group.is_multicast() {
            return Err(invalid(format!("{group} is not a multicast address")));
        }
        if let Some(known) = self.joined.iter_mut().find(|known| known.address == group) {
            known.joins += 1;
            return Ok(());
        }
        if self.joined.len() >= GROUPS_LIMIT {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let any = self.bound.is_unspecified();
        if group.is_ipv4() != self.bound.is_ipv4() && !(any && group.is_ipv4()) {
            let (own, groups) =
                if group.is_ipv4() { ("IPv6", "ff0e::1") } else { ("IPv4", "::ffff:239.1.2.3") };
            return Err(invalid(format!(
                "multicast group {group} is of another IP version than {}, the only address of this device: \
                choose \
                 an {own} group like {groups}, or let the device have all addresses of the host (no \
                 PUMICE_ADDR)",
                self.bound
            )));
        }
        let sockets = match group {
            IpAddr::V6(group) if any && has_scope(group) => self.on_each_interface(unicast, group)?,
            _ => vec![self.on_one(unicast, group)?],
        };
        self.joined.push(JoinedGroup { address: group, sockets, joins: 1 });
        Ok(())
    }

    /// Opens the socket of a group that is the same on all interfaces, or that belongs to the one of the
    /// port's address.
    fn on_one(&self, unicast: &Socket, group: IpAddr) -> io::Result<Socket> {
        let socket = self.open(unicast, group, self.scope_id)?;
        match (group, self.bound) {
            _ if self.bound.is_unspecified() => join_everywhere(&socket, group)?,
            (IpAddr::V4(group), IpAddr::V4(on)) => socket.join_multicast_v4(&group, &on)?,
            (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, self.scope_id)?,
            (IpAddr::V4(group), IpAddr::V6(_)) => socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?,
        }
        Ok(socket)
    }

    /// Opens the sockets of a group that is another one on each interface.
    fn on_each_interface(&self, unicast: &Socket, group: Ipv6Addr) -> io::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        let mut refused = io::Error::from_raw_os_error(libc::ENODEV);
        for interface in interface::interfaces()?.iter().filter(|interface| interface.up) {
            let joined = self.open(unicast, group.into(), interface.index).and_then(|socket| {
                socket.join_multicast_v6(&group, interface.index)?;
                Ok(socket)
            });
            match joined {
                Ok(socket) => sockets.push(socket),
                // An interface without IPv6.
                Err(error) => refused = error,
            }
        }
        if sockets.is_empty() { Err(refused) } else { Ok(sockets) }
    }

    pub(super) fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        let Some(index) = self.joined.iter().position(|known| known.address == group) else {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        };
        if let Some(known) = self.joined.get_mut(index) {
            known.joins -= 1;
            if known.joins == 0 {
                // Closing the socket leaves the group.
                self.joined.remove(index);
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.joined.is_empty()
    }

    /// Returns the group socket whose turn it is, if any: groups and unicast alternate.
    pub(super) fn turn(&mut self) -> Option<(RawFd, IpAddr)> {
        if self.joined.is_empty() {
            return None;
        }
        self.turn = (self.turn + 1) % self.sockets().count();
        let (socket, group) = self.sockets().nth(self.turn)?;
        Some((socket.as_raw_fd(), group))
    }

    fn sockets(&self) -> impl Iterator<Item = (&Socket, IpAddr)> {
        self.joined.iter().flat_map(|group| group.sockets.iter().map(|socket| (socket, group.address)))
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.sockets().map(|(socket, _)| socket.as_raw_fd())
    }

    fn open(&self, unicast: &Socket, group: IpAddr, scope_id: u32) -> io::Result<Socket> {
        let sharing = PortReuse { reuse_port: self.reuse_port, reuse_address: true };
        // The wildcard overlaps with every group, and Linux requires both sides of an overlap to agree. It
        // checks that only while binding, so this process's own socket agrees for as long as that takes:
        // afterwards no other socket can take the port from under it.
        let overlap = self.bound.is_unspecified();
        if overlap {
            unicast.set_reuse_address(true)?;
        }
        let name = udp::destination(false, group, self.port, scope_id);
        let opened = udp::open(name, self.buffer_bytes, sharing);
        if overlap {
            unicast.set_reuse_address(false)?;
        }
        opened.map_err(|error| match error {
            PortError::Socket { source, .. } => source,
            PortError::Taken { .. } => io::Error::new(io::ErrorKind::AddrInUse, error),
            other => io::Error::other(other),
        })
    }
}

/// Joins on every interface that is up: the wildcard means all of them.
fn join_everywhere(socket: &Socket, group: IpAddr) -> io::Result<()> {
    let mut outcome = Err(io::Error::from_raw_os_error(libc::ENODEV));
    for interface in interface::interfaces()?.iter().filter(|interface| interface.up) {
        let joined = match group {
            IpAddr::V4(group) => {
                socket.join_multicast_v4_n(&group, &socket2::InterfaceIndexOrAddress::Index(interface.index))
            }
            IpAddr::V6(group) => socket.join_multicast_v6(&group, interface.index),
        };
        if outcome.is_err() {
            outcome = joined;
        }
    }
    outcome
}

fn owner(address: IpAddr) -> Option<Interface> {
    let has = |interface: &Interface| interface.addresses.iter().any(|&(own, _)| own == address);
    interface::interfaces().ok()?.into_iter().find(has)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

//! Hosts of attached networks: whether the kernel's neighbour table (ARP, neighbour discovery) has the next
//! hop on the way to a peer. Linux's connection manager asks it before it reports that an address is
//! resolved. No privilege is needed: the tables are read by netlink, and a datagram makes the kernel look for
//! a host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};

use super::system_call::wait_readable;
use super::time::now;

/// `RTM_*` of linux/rtnetlink.h.
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
/// `NLMSG_ERROR`, `NLM_F_REQUEST`.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// `RTN_UNICAST`: neither this host nor a group is at the end of the route.
const UNICAST: u8 = 1;
/// `RTA_*`, `NDA_DST`.
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_SOURCE: u16 = 2;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_VIA: u16 = 18;
const NEIGHBOUR_DESTINATION: u16 = 1;
/// `NUD_VALID`: PERMANENT, NOARP, REACHABLE, PROBE, STALE, DELAY.
const VALID: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;
/// Bytes of `struct nlmsghdr`, and of `struct rtmsg` and `struct ndmsg`.
const HEADER_BYTES: usize = 16;
const BODY_BYTES: usize = 12;
/// Bytes of `struct ifinfomsg`.
const LINK_BYTES: usize = 16;
/// `IFF_LOOPBACK`, `IFF_POINTOPOINT`, `IFF_NOARP`: packets that leave by such an interface have only one way
/// to go.
const WITHOUT_NEIGHBOURS: u32 = 0x08 | 0x10 | 0x80;
/// The port of the discard service, which throws away what it receives.
const DISCARD: u16 = 9;

/// The host that packets to a peer go to first: the peer, or a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    address: IpAddr,
    interface: u32,
    /// The source and the destination of the way through this host.
    source: IpAddr,
    peer: SocketAddr,
}

/// The reachability of a peer, as far as the routing table knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachability {
    /// No host has to be found: the peer is this host or a group, it is behind an interface that has no
    /// neighbours, or the kernel does not say.
    Assumed,
    /// A host has to be found first.
    Neighbour(Neighbour),
    /// No route leads to the peer.
    NoRoute,
}

/// A connection to the kernel's neighbour and routing tables.
pub struct Neighbours {
    socket: OwnedFd,
}

impl Neighbours {
    /// Opens a connection to the kernel's tables.
    ///
    /// # Errors
    /// A sandbox may forbid the socket.
    pub fn new() -> io::Result<Neighbours> {
        Ok(Neighbours { socket: netlink(0)? })
    }

    /// Returns the host that has to be found before a packet can go from `source` to `peer`; `None`: there is
    /// none.
    pub fn next_hop(&self, source: IpAddr, peer: SocketAddr) -> Option<Neighbour> {
        match self.reachability(source, peer) {
            Reachability::Neighbour(neighbour) => Some(neighbour),
            Reachability::Assumed | Reachability::NoRoute => None,
        }
    }

    /// Returns whether packets from `source` can reach `peer`, and which host has to be found before.
    pub fn reachability(&self, source: IpAddr, peer: SocketAddr) -> Reachability {
        let question = route_question(source, peer);
        match self.answer(&question, NEW_ROUTE) {
            Ok(answer) => match first_host(&answer, source, peer) {
                Some(neighbour) if self.has_neighbours(neighbour.interface) => {
                    Reachability::Neighbour(neighbour)
                }
                _ => Reachability::Assumed,
            },
            Err(Errno::NETUNREACH | Errno::HOSTUNREACH) => Reachability::NoRoute,
            Err(_) => Reachability::Assumed,
        }
    }

    /// Reports whether hosts have to be found behind an interface; false if the kernel does not say.
    pub fn has_neighbours(&self, interface: u32) -> bool {
        let mut body = [0; LINK_BYTES];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        let answer = self.answer(&NetlinkRequest::new(GET_LINK, &body), NEW_LINK).unwrap_or_default();
        let flags = answer.get(8..12).and_then(|flags| flags.first_chunk());
        flags.is_some_and(|flags| u32::from_ne_bytes(*flags) & WITHOUT_NEIGHBOURS == 0)
    }

    /// Makes the kernel find the neighbour, and waits until it has found it. Returns false if `limit` is over
    /// before.
    pub fn find(&self, neighbour: &Neighbour, limit: Duration) -> bool {
        if self.has(neighbour) {
            return true;
        }
        // The subscription begins before the kernel searches, so that no change is missed.
        let Ok(changes) = NeighbourChanges::new() else { return true };
        neighbour.start_resolution();
        let until = now() + limit;
        while !self.has(neighbour) {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                return false;
            }
            if wait_readable(&[changes.socket.as_raw_fd()], None, Some(left)).is_err() {
                return true;
            }
            changes.drain();
        }
        true
    }

    /// Reports whether the kernel knows the neighbour's link-layer address; true if the kernel does not say.
    pub fn has(&self, neighbour: &Neighbour) -> bool {
        let mut body = [0; BODY_BYTES];
        body[0] = family(neighbour.address);
        body[4..8].copy_from_slice(&neighbour.interface.to_ne_bytes());
        let mut question = NetlinkRequest::new(GET_NEIGHBOUR, &body);
        question.put(NEIGHBOUR_DESTINATION, &octets(neighbour.address));
        match self.answer(&question, NEW_NEIGHBOUR) {
            Ok(answer) => answer
                .get(8..10)
                .and_then(|state| state.first_chunk())
                .is_none_or(|state| u16::from_ne_bytes(*state) & VALID != 0),
            Err(Errno::NOENT) => false,
            // Kernels before 5.0 do not answer this question.
            Err(_) => true,
        }
    }

    /// Returns what follows the header of the answer, which is there when the question was sent.
    fn answer(&self, question: &NetlinkRequest, wanted: u16) -> Result<Vec<u8>, Errno> {
        sendto(&self.socket, &question.bytes(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = [0_u8; 4096];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        let answer = answer.get(..length).unwrap_or_default();
        let body = answer.get(HEADER_BYTES..).ok_or(Errno::BADMSG)?;
        let kind = answer.get(4..6).and_then(|kind| kind.first_chunk()).map(|kind| u16::from_ne_bytes(*kind));
        match kind {
            Some(kind) if kind == wanted => Ok(body.to_vec()),
            Some(ERROR) => {
                let errno = body.first_chunk().map_or(0, |errno| i32::from_ne_bytes(*errno));
                Err(Errno::from_raw_os_error(errno.saturating_neg()))
            }
            _ => Err(Errno::BADMSG),
        }
    }
}

/// Returns the question for the route from `source` to `peer`.
fn route_question(source: IpAddr, peer: SocketAddr) -> NetlinkRequest {
    let ip = peer.ip();
    let (prefix, scope) = match peer {
        SocketAddr::V4(_) => (32, 0),
        SocketAddr::V6(peer) => (128, peer.scope_id()),
    };
    let mut body = [0; BODY_BYTES];
    (body[0], body[1]) = (family(ip), prefix);
    let mut question = NetlinkRequest::new(GET_ROUTE, &body);
    question.put(ROUTE_DESTINATION, &octets(ip));
    if source.is_ipv4() == ip.is_ipv4() && !source.is_unspecified() {
        question.put(ROUTE_SOURCE, &octets(source));
    }
    if scope != 0 {
        question.put(ROUTE_INTERFACE, &scope.to_ne_bytes());
    }
    question
}

/// Returns the first host of a route, the peer or a gateway; `None` if the route leads to this host or to a
/// group.
fn first_host(answer: &[u8], source: IpAddr, peer: SocketAddr) -> Option<Neighbour> {
    let (body, attributes) = answer.split_at_checked(BODY_BYTES)?;
    if body.get(7) != Some(&UNICAST) {
        return None;
    }
    let (mut address, mut interface) = (peer.ip(), None);
    for (kind, value) in NetlinkAttributes(attributes) {
        match kind {
            ROUTE_INTERFACE => interface = value.first_chunk().map(|index| u32::from_ne_bytes(*index)),
            ROUTE_GATEWAY => address = address_of(value)?,
            // The family, two bytes, comes first.
            ROUTE_VIA => address = address_of(value.get(2..)?)?,
            _ => {}
        }
    }
    Some(Neighbour { address, interface: interface?, source, peer })
}

impl Neighbour {
    /// Returns the address of the neighbour: that of the peer, or of a gateway.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Makes the kernel look for the neighbour, by an empty datagram to the peer, which no gateway forwards.
    pub fn start_resolution(&self) {
        let mut to = self.peer;
        to.set_port(DISCARD);
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let from = if self.source.is_ipv4() == to.is_ipv4() { self.source } else { any };
        let socket = UdpSocket::bind((from, 0)).or_else(|_| UdpSocket::bind((any, 0)));
        // A datagram that cannot be sent finds no neighbour, which the time limit reports.
        let _ = socket.and_then(|socket| {
            let limited = socket2::SockRef::from(&socket);
            if to.is_ipv4() {
                limited.set_ttl_v4(1)?
            } else {
                limited.set_unicast_hops_v6(1)?
            }
            socket.send_to(&[], to)
        });
    }
}

/// A subscription to changes of the kernel's neighbour table.
pub struct NeighbourChanges {
    socket: OwnedFd,
}

impl NeighbourChanges {
    /// Subscribes to changes.
    ///
    /// # Errors
    /// As of [`Neighbours::new`].
    pub fn new() -> io::Result<NeighbourChanges> {
        /// `RTMGRP_NEIGH`.
        const GROUP: u32 = 4;
        Ok(NeighbourChanges { socket: netlink(GROUP)? })
    }

    /// Discards the received messages; the table itself has the present state.
    pub fn drain(&self) {
        const MAX_MESSAGES: usize = 1024;
        for _ in 0..MAX_MESSAGES {
            match recv(&self.socket, &mut [0_u8; 16][..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for NeighbourChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn netlink(groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // The protocol is left out: NETLINK_ROUTE is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// A question to the kernel.
struct NetlinkRequest {
    kind: u16,
    body: Vec<u8>,
}

impl NetlinkRequest {
    fn new(kind: u16, body: &[u8]) -> NetlinkRequest {
        NetlinkRequest { kind, body: body.to_vec() }
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        // The value is an address or a number.
        let length = 4 + value.len() as u16;
        self.body.extend_from_slice(&length.to_ne_bytes());
        self.body.extend_from_slice(&kind.to_ne_bytes());
        self.body.extend_from_slice(value);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    fn bytes(&self) -> Vec<u8> {
        let length = (HEADER_BYTES + self.body.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&REQUEST.to_ne_bytes());
        // The number of the question, and the sender's, which the kernel fills in.
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A list of attributes: kind and value.
struct NetlinkAttributes<'a>(&'a [u8]);

impl<'a> Iterator for NetlinkAttributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let &[l0, l1, k0, k1] = self.0.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]), value))
    }
}

const fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match *bytes {
        [a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d).into()),
        _ => <[u8; 16]>::try_from(bytes).ok().map(|octets| Ipv6Addr::from(octets).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_to_be_found_on_the_way_to_this_host_and_to_groups() {
        let tables = Neighbours::new().unwrap();
        for peer in ["127.0.0.1:7471", "127.9.9.9:7471", "[::1]:7471"] {
            let peer: SocketAddr = peer.parse().unwrap();
            assert_eq!(tables.next_hop(peer.ip(), peer), None, "{peer}");
        }
    }

    #[test]
    fn a_host_that_was_never_looked_for_is_not_known() {
        let tables = Neighbours::new().unwrap();
        let (source, peer) = ("127.0.0.1".parse().unwrap(), "203.0.113.77:1".parse().unwrap());
        let never = Neighbour { address: "203.0.113.77".parse().unwrap(), interface: 1, source, peer };
        assert!(!tables.has(&never));
        // No interface has this number: the kernel does not answer.
        assert!(tables.has(&Neighbour { interface: u32::MAX >> 1, ..never }));
    }

    #[test]
    fn attributes_that_are_cut_off_are_left_out() {
        let mut question = NetlinkRequest::new(GET_ROUTE, &[]);
        question.put(ROUTE_GATEWAY, &[192, 0, 2, 1]);
        question.put(ROUTE_INTERFACE, &7_u32.to_ne_bytes());
        let all: Vec<u16> = NetlinkAttributes(&question.body).map(|(kind, _)| kind).collect();
        assert_eq!(all, [ROUTE_GATEWAY, ROUTE_INTERFACE]);
        for length in 0..question.body.len() {
            assert!(NetlinkAttributes(&question.body[..length]).count() < 2);
        }
        assert_eq!(NetlinkAttributes(&[2, 0, 1, 0, 9]).count(), 0);
        assert_eq!(address_of(&[1, 2, 3]), None);
    }
}

//! The LIDs that stand for addresses, and whether a peer's host can be reached.
//!
//! LIDs, for programs that know no GIDs. RoCE has no LIDs: an address vector without GRH is refused, as real
//! RoCE devices refuse it. With PUMICE_LID=1 the port has a LID nevertheless, the low 16 bits of its first
//! address, and a LID stands for the address of the same network that ends with it.
//!
//! The host of a peer. Before a connected queue pair or an address handle leads to an address, Linux looks up
//! its route and finds the first host on it, by ARP or neighbour discovery; the call fails if none answers.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_device::outside::fork_generation::InheritedOnce;
use pumice_device::outside::neighbour::{Neighbour, Neighbours, Reachability};
use pumice_device::port::Topology;
use pumice_transport::types::{AddressVector, Gid};

use crate::log::settings::settings;
use crate::platform::Errno;

/// Reports whether PUMICE_LID is set and neither empty nor 0.
fn has_lids() -> bool {
    static IS_ENABLED: InheritedOnce<bool> = InheritedOnce::new();
    *IS_ENABLED.get_or_init(|| {
        outside::environment::variable("PUMICE_LID").is_some_and(|set| !set.is_empty() && set != "0")
    })
}

/// Returns the LID of a port of a device; 0 for none.
pub(crate) fn lid_of_port(hca: &Hca, port_num: u8) -> u16 {
    if has_lids() { hca.gid(port_num, 0).map_or(0, |first| lid_of(first.gid)) } else { 0 }
}

/// Replaces the LID of an address vector by a GID, if it has only a LID and LIDs are wanted.
pub(crate) fn resolve_lid(vector: AddressVector, hca: &Hca) -> AddressVector {
    if vector.is_global || !has_lids() {
        return vector;
    }
    match hca.gid(vector.port_num, 0) {
        Some(first) => AddressVector {
            is_global: true,
            dgid: gid_with_lid(first.gid, vector.dlid),
            sgid_index: 0,
            hop_limit: 64,
            ..vector
        },
        None => vector,
    }
}

fn lid_of(gid: Gid) -> u16 {
    let [.., high, low] = gid.0;
    u16::from_be_bytes([high, low])
}

/// Returns the GID that differs from `own` only in the bits of the LID.
fn gid_with_lid(own: Gid, lid: u16) -> Gid {
    let mut gid = own;
    let [.., high, low] = &mut gid.0;
    [*high, *low] = lid.to_be_bytes();
    gid
}

//= linux:addr.c#rdma_addr_find_l2_eth_by_grh
//| The host of a peer is looked for during one second.
const LIMIT: Duration = Duration::from_secs(1);

/// Finds the host that an address vector leads to, or the gateway on the way. Returns at once if the kernel
/// knows it, and for addresses of this host. The device refuses a vector that leads nowhere.
///
/// # Errors
/// Fails with ETIMEDOUT if it does not answer, and with ENETUNREACH if no route leads there.
pub(crate) fn find(vector: &AddressVector, hca: &Hca) -> Result<(), Errno> {
    let peer = IpAddr::from(vector.dgid);
    let source = hca.gid(vector.port_num, vector.sgid_index).filter(|_| vector.is_global);
    let Some(source) = source.filter(|source| source.ip.is_ipv4() == peer.is_ipv4()) else { return Ok(()) };
    let is_group = vector.dgid.is_multicast() || peer.is_multicast();
    if is_group || peer.is_unspecified() || hca.gids().iter().any(|(_, own)| own.ip == peer) {
        return Ok(());
    }
    check_answers_arp(peer)?;
    let is_here = peer.is_loopback() || source.ip.is_loopback();
    if is_here || hca.is_address_of_another(peer) {
        return Ok(());
    }
    // A sandbox may forbid these questions to the kernel.
    let Ok(tables) = Neighbours::new() else { return Ok(()) };
    match tables.reachability(source.ip, with_scope(peer, source.interface_index)) {
        Reachability::Assumed => Ok(()),
        Reachability::Neighbour(host) if tables.find(&host, LIMIT) => Ok(()),
        Reachability::Neighbour(host) => {
            Err(Errno(libc::ETIMEDOUT).because(|| unanswered(&host, peer, &source)))
        }
        //= linux:route.c#ip_route_output_key_hash_rcu
        //| Without a route an address of IPv4 is one of the link of the device.
        Reachability::NoRoute if peer.is_ipv4() && !tables.has_neighbours(source.interface_index) => Ok(()),
        Reachability::NoRoute => {
            let errno = if peer.is_ipv4() { libc::ETIMEDOUT } else { libc::ENETUNREACH };
            Err(Errno(errno).because(|| without_route(peer, &source)))
        }
    }
}

/// Refuses a host that is set to answer no ARP, by `--no-neighbour` or in the topology.
///
/// # Errors
/// Fails with ETIMEDOUT for such a host.
pub(crate) fn check_answers_arp(peer: IpAddr) -> Result<(), Errno> {
    static OF_TOPOLOGY: InheritedOnce<Vec<IpAddr>> = InheritedOnce::new();
    let settings = settings()?;
    let by_option = settings.no_neighbour.as_ref().is_some_and(|hosts| hosts.has(peer));
    // Errors in the file were reported when the device was opened.
    let of_topology = OF_TOPOLOGY.get_or_init(|| {
        let topology = Topology::of(settings).ok().flatten();
        let named = topology.iter().flat_map(|topology| &topology.named);
        named.filter(|host| !host.answers_arp).map(|host| host.address).collect()
    });
    if !by_option && !of_topology.contains(&peer) {
        return Ok(());
    }
    let protocol = if peer.is_ipv4() { "ARP" } else { "neighbour discovery" };
    let why = if by_option { "--no-neighbour (PUMICE_NO_NEIGHBOUR)" } else { "answers_arp in the topology" };
    Err(Errno(libc::ETIMEDOUT).because(|| {
        format!(
            "no host answers {protocol} for {peer}: {why} says so. A program tells its user the address, \
             tries again or another path, and destroys the queue pair"
        )
    }))
}

/// Returns an address with the interface by which it is reached, if its scope needs one.
fn with_scope(peer: IpAddr, interface: u32) -> SocketAddr {
    match peer {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, 0, 0, interface).into(),
        other => SocketAddr::new(other, 0),
    }
}

fn unanswered(host: &Neighbour, peer: IpAddr, source: &GidEntry) -> String {
    let GidEntry { ip, interface, .. } = source;
    let protocol = if peer.is_ipv4() { "ARP" } else { "neighbour discovery" };
    let who = match host.address() {
        first if first == peer => format!("no host answers {protocol} for {peer}"),
        gateway => format!("the way to {peer} is by the gateway {gateway}, which does not answer {protocol}"),
    };
    format!(
        "{who} within 1 s (from {ip} of {interface}): an adapter finds no MAC address to send to. Is the \
         peer's host up, is {peer} its address, and on this network? `ping {peer}` and `ip neighbour` tell"
    )
}

fn without_route(peer: IpAddr, source: &GidEntry) -> String {
    let GidEntry { ip, interface, .. } = source;
    let linux = match peer {
        IpAddr::V4(_) => format!(" (Linux looks for it on {interface} then, and nothing answers)"),
        IpAddr::V6(_) => String::new(),
    };
    format!(
        "no route leads to {peer}{linux}: choose a GID index of a network that the peer is in (this one is \
         {ip} of {interface}), or add a route; `ip route get {peer}` tells"
    )
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_lid_names_a_neighbour() {
        let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(lid_of(gid("127.3.1.2")), 0x0102);
        assert_eq!(gid_with_lid(gid("127.3.1.2"), 0x0907), gid("127.3.9.7"));
        assert_eq!(gid_with_lid(gid("2001:db8::1"), lid_of(gid("2001:db8::2"))), gid("2001:db8::2"));
    }

    fn source(ip: &str) -> GidEntry {
        GidEntry::new(ip.parse().unwrap(), "eth0", 2, pumice_transport::types::Mtu::Mtu1024)
    }

    #[test]
    fn sentences_name_the_address_that_was_looked_for() {
        let four = without_route("198.51.100.7".parse().unwrap(), &source("192.0.2.1"));
        assert!(four.starts_with("no route leads to 198.51.100.7 (Linux looks for it on eth0"), "{four}");
        let six = without_route("2001:db8::7".parse().unwrap(), &source("fd00::1"));
        assert!(six.starts_with("no route leads to 2001:db8::7: choose a GID index"), "{six}");
        assert!(six.contains("this one is fd00::1 of eth0"), "{six}");
    }

    #[test]
    fn an_address_of_a_link_has_its_interface() {
        let of_link = with_scope("fe80::1".parse().unwrap(), 7);
        assert_eq!(of_link, "[fe80::1%7]:0".parse().unwrap());
        assert_eq!(with_scope("2001:db8::1".parse().unwrap(), 7), "[2001:db8::1]:0".parse().unwrap());
        assert_eq!(with_scope("10.0.0.1".parse().unwrap(), 7), "10.0.0.1:0".parse().unwrap());
    }
}

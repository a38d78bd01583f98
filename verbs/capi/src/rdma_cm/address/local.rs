//! Selection of this host's address from which a peer is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::Hca;
use pumice_device::outside::interface::interfaces;
use pumice_device::outside::neighbour::{Neighbour, Neighbours};
use pumice_transport::types::Gid;

use crate::objects::device::device_has_all_addresses;
use crate::platform::errno::Errno;

/// Returns this host's loopback address.
pub(crate) fn loopback(ipv4: bool) -> IpAddr {
    if ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// Returns the device's entry for an address of this host. 127.0.0.1 and ::1 are in the GID table only where
/// the host has no other address; otherwise an address of the device replaces them.
///
/// # Errors
/// Fails with EADDRNOTAVAIL if it is no address of this host, and with ENODEV if it is not the device's.
pub(crate) fn own(hca: &Hca, ip: IpAddr) -> Result<GidEntry, Errno> {
    if let Some(entry) = substitute(hca, ip).or_else(|| listed(hca, ip)) {
        return Ok(entry);
    }
    let mut found = interfaces().unwrap_or_default().into_iter();
    let here = found.any(|interface| interface.addresses.iter().any(|(address, _)| *address == ip));
    let errno = Errno(if here { libc::ENODEV } else { libc::EADDRNOTAVAIL });
    Err(errno.because(|| {
        if here && !device_has_all_addresses() {
            return format!(
                "{ip} is an address of this host, but no device has it: --addr (PUMICE_ADDR) says which \
                 addresses devices have; without it a device has all, and `--devices 2 --addr A,{ip}` gives \
                 a second device this one"
            );
        }
        format!("{ip} is none of the device's addresses: `pumice devices` lists them")
    }))
}

/// Returns the port of the device that has a GID; the first if none has.
pub(crate) fn port_of(hca: &Hca, gid: Gid) -> u8 {
    hca.gids().into_iter().find(|(_, entry)| entry.gid == gid).map_or(1, |(_, entry)| entry.port_num)
}

fn listed(hca: &Hca, ip: IpAddr) -> Option<GidEntry> {
    hca.gids().into_iter().map(|(_, entry)| entry).find(|entry| entry.ip == ip)
}

/// Returns the device's replacement for 127.0.0.1 or ::1: its first other address of that IP version,
/// otherwise its first other one. A device with one configured address has only that one.
fn substitute(hca: &Hca, ip: IpAddr) -> Option<GidEntry> {
    let names_this_host = matches!(ip, IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST));
    let has_all = device_has_all_addresses();
    if !names_this_host || !has_all {
        return None;
    }
    // Loopback addresses are left out too: a process that started before the network came up still lists
    // them.
    let entries = || hca.gids().into_iter().map(|(_, entry)| entry).filter(|entry| !entry.ip.is_loopback());
    entries().find(|entry| entry.ip.is_ipv4() == ip.is_ipv4()).or_else(|| entries().next())
}

/// Returns the GID of a peer as seen from an entry of the device's: the destination of packets. As in Linux,
/// 127.0.0.1 and ::1 are at the entry itself where the device has other addresses, unless a process on this
/// host has exactly that address.
pub(crate) fn gid_of_peer(hca: &Hca, entry: &GidEntry, peer: IpAddr) -> Gid {
    if substitute(hca, peer).is_some() && !hca.is_address_of_another(peer) {
        entry.gid
    } else {
        Gid::from(peer)
    }
}

/// Returns the own address that a program sees on the way from an entry to a peer: for a loopback connection
/// it sees loopback, although another address carries it.
pub(crate) fn shown_source(hca: &Hca, entry: &GidEntry, peer: IpAddr) -> IpAddr {
    let is_substituted = peer.is_loopback() && gid_of_peer(hca, entry, peer) == entry.gid;
    if is_substituted { peer } else { entry.ip }
}

/// Returns the device's entry from which a peer is reached: the peer's own address, if that is the device's;
/// otherwise the routing table's source address, if that is the device's; otherwise the device's first of
/// that IP version.
///
/// # Errors
/// Fails with ENETUNREACH if there is no route, and with ENODEV if the device has no such address.
pub(crate) fn source_for(hca: &Hca, peer: SocketAddr) -> Result<GidEntry, Errno> {
    if let Some(entry) = substitute(hca, peer.ip()).or_else(|| listed(hca, peer.ip())) {
        return Ok(entry);
    }
    let routed = routed_source(peer)?;
    let same_version = |entry: &GidEntry| entry.ip.is_ipv4() == peer.is_ipv4();
    let first = || hca.gids().into_iter().map(|(_, entry)| entry).find(same_version);
    listed(hca, routed).or_else(first).ok_or(Errno(libc::ENODEV))
}

/// Returns the source address with which the routing table leads to a peer.
///
/// # Errors
/// Fails with ENETUNREACH if there is no route.
pub(crate) fn routed_source(peer: SocketAddr) -> Result<IpAddr, Errno> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // No packet is sent: connecting a datagram socket looks up its route. The port does not matter, except
    // that it must not be 0.
    let port = if peer.port() == 0 { 1 } else { peer.port() };
    let mut target = peer;
    target.set_port(port);
    let routed = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(target)?;
        socket.local_addr()
    });
    let routed = routed.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::ENETUNREACH)))?;
    Ok(routed.ip())
}

/// Returns the host that has to be found before packets can go from an address of the device's to a peer.
/// Returns `None` if the peer is this host, or if the kernel does not tell.
pub(crate) fn neighbour_towards(hca: &Hca, source: IpAddr, peer: SocketAddr) -> Option<Neighbour> {
    if peer.ip().is_loopback() || listed(hca, peer.ip()).is_some() {
        return None;
    }
    Neighbours::new().ok()?.next_hop(source, peer)
}

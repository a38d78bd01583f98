//! Which of this host's addresses a peer is reached from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::Hca;
use pumice_device::outside::interface::interfaces;
use pumice_device::outside::neighbour::{Neighbour, Neighbours};
use pumice_transport::types::Gid;

use crate::ground::errno::Errno;
use crate::objects::device::device_has_all_addresses;

/// This host's own address.
pub(crate) fn loopback(ipv4: bool) -> IpAddr {
    if ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// The device's entry for an address of this host. For 127.0.0.1 and ::1, which are in the GID table only
/// where the host has nothing else, an address of the device stands in.
///
/// # Errors
/// EADDRNOTAVAIL: it is none of this host's; ENODEV: it is not the device's.
pub(crate) fn own(hca: &Hca, ip: IpAddr) -> Result<GidEntry, Errno> {
    if let Some(entry) = stand_in(hca, ip).or_else(|| listed(hca, ip)) {
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

/// The port of the device that has a GID; the first if none has.
pub(crate) fn port_of(hca: &Hca, gid: Gid) -> u8 {
    hca.gids().into_iter().find(|(_, entry)| entry.gid == gid).map_or(1, |(_, entry)| entry.port_num)
}

fn listed(hca: &Hca, ip: IpAddr) -> Option<GidEntry> {
    hca.gids().into_iter().map(|(_, entry)| entry).find(|entry| entry.ip == ip)
}

/// What the device has instead of 127.0.0.1 or ::1: its first other address of that IP version, else its
/// first other one. A device with one address that was asked for has that one only.
fn stand_in(hca: &Hca, ip: IpAddr) -> Option<GidEntry> {
    let names_this_host = matches!(ip, IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST));
    let has_all = device_has_all_addresses();
    if !names_this_host || !has_all {
        return None;
    }
    // Not loopback either, which a process that started before the network came up still lists.
    let entries = || hca.gids().into_iter().map(|(_, entry)| entry).filter(|entry| !entry.ip.is_loopback());
    entries().find(|entry| entry.ip.is_ipv4() == ip.is_ipv4()).or_else(|| entries().next())
}

/// The way from an entry of the device's to a peer: the GID that packets are sent to. As in Linux, 127.0.0.1
/// and ::1 are at the entry itself where the device has other addresses, unless a process on this host has
/// just that one.
pub(crate) fn gid_of_peer(hca: &Hca, entry: &GidEntry, peer: IpAddr) -> Gid {
    if stand_in(hca, peer).is_some() && !hca.is_address_of_another(peer) {
        entry.gid
    } else {
        Gid::from(peer)
    }
}

/// What a program sees as its own address on the way from an entry to a peer: of a loopback connection it
/// sees loopback, although another address carries it.
pub(crate) fn shown_source(hca: &Hca, entry: &GidEntry, peer: IpAddr) -> IpAddr {
    let stands_in = peer.is_loopback() && gid_of_peer(hca, entry, peer) == entry.gid;
    if stands_in { peer } else { entry.ip }
}

/// The device's entry from which a peer is reached: the peer's own address, if that is the device's; else
/// what the routing table says, if that is; else the device's first of that IP version.
///
/// # Errors
/// ENETUNREACH: there is no route; ENODEV: the device has no such address.
pub(crate) fn source_for(hca: &Hca, peer: SocketAddr) -> Result<GidEntry, Errno> {
    if let Some(entry) = stand_in(hca, peer.ip()).or_else(|| listed(hca, peer.ip())) {
        return Ok(entry);
    }
    let routed = routed_source(peer)?;
    let same_version = |entry: &GidEntry| entry.ip.is_ipv4() == peer.is_ipv4();
    let first = || hca.gids().into_iter().map(|(_, entry)| entry).find(same_version);
    listed(hca, routed).or_else(first).ok_or(Errno(libc::ENODEV))
}

/// The address from which the routing table leads to a peer.
///
/// # Errors
/// ENETUNREACH: there is no route.
pub(crate) fn routed_source(peer: SocketAddr) -> Result<IpAddr, Errno> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Nothing is sent: connecting a datagram socket looks its route up. The port does not matter, but for 0.
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

/// The host that has to be found before packets can go from an address of the device's to a peer. None: the
/// peer is this host, or the kernel does not tell.
pub(crate) fn neighbour_towards(hca: &Hca, source: IpAddr, peer: SocketAddr) -> Option<Neighbour> {
    if peer.ip().is_loopback() || listed(hca, peer.ip()).is_some() {
        return None;
    }
    Neighbours::new().ok()?.next_hop(source, peer)
}

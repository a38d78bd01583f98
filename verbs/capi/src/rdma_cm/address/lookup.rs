//! Selection of this host's address from which a peer is reached, and name resolution by the C library.
//!
//! The answer is a list of one that the program frees with `rdma_freeaddrinfo`, so all of it comes from
//! malloc(3).

use std::ffi::{CStr, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ptr;

use libc::{addrinfo, sockaddr_storage};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::Hca;
use pumice_device::outside::interface::interfaces;
use pumice_device::outside::neighbour::{Neighbour, Neighbours};
use pumice_transport::types::Gid;

use crate::abi::plain::{ForwardedStruct, bytes, zeroed};
use crate::abi::rdma_addrinfo;
use crate::entry::arguments::Text;
use crate::objects::device::device_has_all_addresses;
use crate::platform::reserve::Allocation;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED, reserve};
use crate::rdma_cm::constants::{
    PS_IPOIB, PS_TCP, PS_UDP, QPT_RC, QPT_UD, RAI_DNS, RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RAI_SA,
};

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

/// An answer, which is freed unless the program gets it.
pub(crate) struct AddressInfo(ForwardedStruct<*mut rdma_addrinfo>);

impl AddressInfo {
    /// Gives the answer to the program.
    pub(crate) const fn into_raw(self) -> *mut rdma_addrinfo {
        let ForwardedStruct(raw) = self.0;
        std::mem::forget(self);
        raw
    }
}

impl Drop for AddressInfo {
    fn drop(&mut self) {
        // SAFETY: `describe` made the list, and the program does not have it.
        unsafe { free(self.0.0) };
    }
}

/// Result of a lookup.
pub(crate) enum LookupResult {
    Found(AddressInfo),
    /// Error of the C library (`EAI_*`).
    NotFound(c_int),
}

/// Returns the data that a structure of addresses points at.
fn data<I>(_of: &I, start: *const c_void, length: usize) -> Option<&[u8]> {
    // SAFETY: null, or data of the length that the structure gives, which lives as long as the structure: it
    // is the program's or the C library's, and neither changes it meanwhile.
    unsafe { bytes(start, length) }
}

/// Returns the private data that an endpoint of these addresses sends when it connects.
pub(crate) fn connect_data(info: &rdma_addrinfo) -> &[u8] {
    data(info, info.ai_connect, info.ai_connect_len).unwrap_or_default()
}

/// Returns the paths that the program gives with the addresses, in the form of RDMA_OPTION_IB_PATH.
pub(crate) fn route(info: &rdma_addrinfo) -> Option<&[u8]> {
    data(info, info.ai_route, info.ai_route_len).filter(|route| !route.is_empty())
}

/// Result of the C library, which is freed when this is dropped.
struct Found(*mut addrinfo);

impl Found {
    fn first(&self) -> Option<&addrinfo> {
        // SAFETY: null, or the C library's list, which is freed only by `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the list came from getaddrinfo, and nothing borrows it any more.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

/// Looks up a name.
///
/// # Errors
/// Fails with EINVAL if there is no name, with EOPNOTSUPP for a flag that only InfiniBand can implement, and
/// with ENOMEM.
pub(crate) fn look_up(
    node: Text<'_>,
    service: Text<'_>,
    hints: Option<&rdma_addrinfo>,
) -> Result<LookupResult, Errno> {
    let (node, service) = (node.optional(), service.optional());
    let named = node.is_some() || service.is_some();
    if !named && hints.is_none() {
        return Err(INVALID);
    }
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    if flags & RAI_SA != 0 {
        let both = flags & RAI_DNS != 0;
        return Err(NOT_SUPPORTED.because(|| match both {
            true => "RAI_SA and RAI_DNS exclude each other".to_owned(),
            false => "RoCE has no subnet administration that RAI_SA could ask".to_owned(),
        }));
    }
    if !named {
        return describe(hints, flags, None).map(LookupResult::Found);
    }
    let (wanted, mut found) = (wanted(hints, flags), ptr::null_mut());
    let [node, service] = [node, service].map(|text| text.map_or(ptr::null(), CStr::as_ptr));
    // SAFETY: null, or texts that end with a zero byte; `wanted` and `found` are this function's own.
    let code = unsafe { libc::getaddrinfo(node, service, &wanted, &mut found) };
    if code != 0 {
        return Ok(LookupResult::NotFound(code));
    }
    describe(hints, flags, Found(found).first()).map(LookupResult::Found)
}

/// Returns the hints for the C library.
fn wanted(hints: Option<&rdma_addrinfo>, flags: c_int) -> addrinfo {
    let mut wanted = zeroed::<addrinfo>();
    wanted.ai_flags = if flags & RAI_PASSIVE != 0 { libc::AI_PASSIVE } else { 0 }
        | if flags & RAI_NUMERICHOST != 0 { libc::AI_NUMERICHOST } else { 0 };
    // A GID is an IP address, of either version.
    let family = hints.map_or(0, |hints| hints.ai_family);
    wanted.ai_family = if family == super::FAMILY { 0 } else { family };
    // Services have ports of their own for datagrams.
    wanted.ai_socktype = match hints.map_or((0, 0), |hints| (hints.ai_port_space, hints.ai_qp_type)) {
        (space, 0) if is_datagram(space) => libc::SOCK_DGRAM,
        (_, kind) if kind == QPT_UD as c_int => libc::SOCK_DGRAM,
        _ => libc::SOCK_STREAM,
    };
    wanted
}

const fn is_datagram(port_space: c_int) -> bool {
    port_space == PS_UDP as c_int || port_space == PS_IPOIB as c_int
}

/// Reports whether a numeric address is wanted as a GID.
fn by_gid(hints: Option<&rdma_addrinfo>) -> bool {
    const FLAGS: c_int = RAI_FAMILY | RAI_NUMERICHOST;
    hints.is_some_and(|hints| hints.ai_flags & FLAGS == FLAGS && hints.ai_family == super::FAMILY)
}

/// Builds the answer from the hints and the C library's result.
fn describe(
    hints: Option<&rdma_addrinfo>,
    flags: c_int,
    found: Option<&addrinfo>,
) -> Result<AddressInfo, Errno> {
    let mut info = zeroed::<rdma_addrinfo>();
    // Of the lookup's flags, only this one has a meaning in the answer.
    info.ai_flags = if found.is_some() { flags & RAI_PASSIVE } else { flags };
    (info.ai_port_space, info.ai_qp_type) =
        hints.map_or((0, 0), |hints| (hints.ai_port_space, hints.ai_qp_type));
    if info.ai_port_space == 0 {
        info.ai_port_space = if info.ai_qp_type == QPT_UD as c_int { PS_UDP } else { PS_TCP } as c_int;
    }
    if info.ai_qp_type == 0 {
        info.ai_qp_type = if is_datagram(info.ai_port_space) { QPT_UD } else { QPT_RC } as c_int;
    }
    let looked_up = found.and_then(|found| data(found, found.ai_addr.cast(), found.ai_addrlen as usize));
    let gid = looked_up.filter(|_| by_gid(hints)).and_then(|found| {
        let space = super::port_space(info.ai_port_space).ok()?;
        Some(super::ib_bytes(&super::ib_to_c(super::parse(found).ok()?, space)))
    });
    let named = gid.as_deref().or(looked_up);
    let source = hints.and_then(|h| data(h, h.ai_src_addr.cast(), h.ai_src_len as usize));
    let destination = hints.and_then(|h| data(h, h.ai_dst_addr.cast(), h.ai_dst_len as usize));
    let (source, destination) =
        if flags & RAI_PASSIVE != 0 { (named.or(source), None) } else { (source, named.or(destination)) };
    let shown = source.filter(|bytes| !bytes.is_empty()).or(destination);
    info.ai_family = shown.and_then(|bytes| bytes.first_chunk()).map_or(0, |f| u16::from_ne_bytes(*f).into());

    let (source, destination) = (copy(source)?, copy(destination)?);
    let answer = Allocation::new(rdma_addrinfo {
        ai_src_len: source.length,
        ai_src_addr: source.address.as_ref().map_or(ptr::null_mut(), Allocation::as_ptr).cast(),
        ai_dst_len: destination.length,
        ai_dst_addr: destination.address.as_ref().map_or(ptr::null_mut(), Allocation::as_ptr).cast(),
        ..info
    })?;
    // They are freed with the answer from here on.
    std::mem::forget((source, destination));
    Ok(AddressInfo(ForwardedStruct(answer.into_raw())))
}

/// A copy of an address, with room for any address.
struct CopiedAddress {
    address: Option<Allocation<sockaddr_storage>>,
    length: u32,
}

/// # Errors
/// Fails with EINVAL if it is longer than any address, and with ENOMEM.
fn copy(address: Option<&[u8]>) -> Result<CopiedAddress, Errno> {
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        return Ok(CopiedAddress { address: None, length: 0 });
    };
    if address.len() > size_of::<sockaddr_storage>() {
        return Err(INVALID);
    }
    let copied = Allocation::new(super::storage(address))?;
    Ok(CopiedAddress { address: Some(copied), length: address.len() as u32 })
}

/// Frees a list of answers.
///
/// # Safety
/// `list` must be null, or an answer of [`look_up`] that is not used any more.
pub(crate) unsafe fn free(list: *mut rdma_addrinfo) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the structure is an answer of `describe`, by the function's own contract.
        let info = unsafe { next.read() };
        let parts: [*mut c_void; 7] = [
            info.ai_src_addr.cast(),
            info.ai_dst_addr.cast(),
            info.ai_src_canonname.cast(),
            info.ai_dst_canonname.cast(),
            info.ai_route,
            info.ai_connect,
            next.cast(),
        ];
        for part in parts {
            // SAFETY: each part is null or memory of malloc that only this structure refers to.
            unsafe { reserve::free(part) };
        }
        next = info.ai_next;
    }
}

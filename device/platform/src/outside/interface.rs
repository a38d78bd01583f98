//! The host's network interfaces, from which the GID table and the port's MTU are made.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::{io, ptr};

use libc::{c_char, c_int, sockaddr};
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Socket, Type};

use super::files;

/// An address in an entry of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InterfaceAddress {
    Ip(IpAddr),
    /// A link-layer address of six bytes.
    Mac([u8; 6]),
}

/// An address of an interface, or an interface without addresses.
#[derive(Debug, Clone)]
pub(super) struct InterfaceEntry {
    pub(super) interface: String,
    /// The flags: IFF_UP and others.
    pub(super) flags: c_int,
    pub(super) address: Option<InterfaceAddress>,
    netmask: Option<IpAddr>,
}

/// Returns all entries, in the system's order.
///
/// # Errors
/// The error of getifaddrs(3).
pub(super) fn entries() -> io::Result<Vec<InterfaceEntry>> {
    let mut first = ptr::null_mut();
    // SAFETY: `first` is a live pointer, which the call sets.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list is the call's until it is freed below, and ends with a null pointer.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the name of an entry is a string that ends with a zero.
        let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: an address of an entry is null, or as long as its family says.
        let (address, netmask) = unsafe { (read(entry.ifa_addr), read(entry.ifa_netmask)) };
        let netmask = match netmask {
            Some(InterfaceAddress::Ip(mask)) => Some(mask),
            _ => None,
        };
        found.push(InterfaceEntry { interface, flags: entry.ifa_flags as c_int, address, netmask });
        next = entry.ifa_next;
    }
    // SAFETY: the list is freed once, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the address in a socket address, if it is of a family that interfaces have.
///
/// # Safety
/// `address` is null, or leads to an address that is as long as its family says.
unsafe fn read(address: *const sockaddr) -> Option<InterfaceAddress> {
    // SAFETY: the caller says that it is null or live.
    let family = unsafe { address.as_ref() }?.sa_family;
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family the address has this form; it may stand anywhere.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(InterfaceAddress::Ip(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(InterfaceAddress::Ip(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr))))
        }
        libc::AF_PACKET => {
            // SAFETY: as above.
            let link = unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() };
            let mac = link.sll_addr.first_chunk::<6>().filter(|_| link.sll_halen == 6)?;
            Some(InterfaceAddress::Mac(*mac))
        }
        _ => None,
    }
}

/// The file in which the kernel lists the IPv6 addresses of this network namespace with their flags.
const IPV6_ADDRESSES: &str = "/proc/net/if_inet6";

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name, such as `eth0`.
    pub name: String,
    /// The index, from 1.
    pub index: u32,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if the interface has a carrier: a cable is in, and the other end is up.
    pub carrier: bool,
    /// True if this is the loopback interface.
    pub loopback: bool,
    /// Link MTU in bytes: the largest IP packet; 0 if it is not known.
    pub mtu: usize,
    /// Usable addresses with their prefix lengths, in the system's order.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The link-layer address, if the interface has one of six bytes.
    pub mac: Option<[u8; 6]>,
}

/// Returns the interfaces of this network namespace, by index.
///
/// # Errors
/// The error of getifaddrs(3), or of socket(2).
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found = BTreeMap::<u32, Interface>::new();
    let query = Socket::new(Domain::IPV4, Type::DGRAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::DGRAM, None))?;
    for entry in entries()? {
        let Ok(index) = name_to_index(&query, &entry.interface) else {
            continue; // the interface was removed since the list was made
        };
        let has = |flag: c_int| entry.flags & flag != 0;
        let interface = found.entry(index).or_insert_with(|| Interface {
            name: entry.interface.clone(),
            index,
            up: has(libc::IFF_UP),
            // IFF_RUNNING would come up to a second late: the kernel's link watch sets it no more often.
            carrier: has(libc::IFF_LOWER_UP),
            loopback: has(libc::IFF_LOOPBACK),
            mtu: 0,
            addresses: Vec::new(),
            mac: None,
        });
        match entry.address {
            Some(InterfaceAddress::Ip(address)) => {
                interface.addresses.push((address, entry.netmask.map_or(0, prefix_length)));
            }
            Some(InterfaceAddress::Mac(mac)) => interface.mac = Some(mac),
            None => {}
        }
    }
    remove_unusable(&mut found);
    for interface in found.values_mut() {
        interface.mtu = mtu(&query, &interface.name).unwrap_or(0);
    }
    Ok(found.into_values().collect())
}

/// Removes IPv6 addresses that cannot be used. An IPv6 address cannot be bound, nor sent from, until
/// duplicate address detection has passed (a second or two after the link came up), nor when it found a
/// duplicate. Without /proc all count as usable.
fn remove_unusable(found: &mut BTreeMap<u32, Interface>) {
    let has_ipv6 = found.values().any(|interface| interface.addresses.iter().any(|(a, _)| a.is_ipv6()));
    let Ok(text) = (if has_ipv6 { files::fact_text(IPV6_ADDRESSES) } else { return }) else { return };
    for (index, address) in not_usable_yet(&text) {
        if let Some(interface) = found.get_mut(&index) {
            interface.addresses.retain(|(own, _)| *own != IpAddr::V6(address));
        }
    }
}

/// Returns the interface and the address of the lines of /proc/net/if_inet6 that cannot be used: its columns
/// are the address, the index of the interface, the length of the prefix, the scope and the flags, all
/// hexadecimal, and the interface's name.
fn not_usable_yet(text: &str) -> impl Iterator<Item = (u32, Ipv6Addr)> {
    const DUPLICATE: u32 = 0x08;
    const OPTIMISTIC: u32 = 0x04;
    const TENTATIVE: u32 = 0x40;
    text.lines().filter_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let address = u128::from_str_radix(columns.next()?, 16).ok()?;
        let index = u32::from_str_radix(columns.next()?, 16).ok()?;
        let flags = u32::from_str_radix(columns.nth(2)?, 16).ok()?;
        let waits = flags & TENTATIVE != 0 && flags & OPTIMISTIC == 0;
        (waits || flags & DUPLICATE != 0).then_some((index, Ipv6Addr::from(address)))
    })
}

/// Returns the index of the interface that has an IPv6 address; 0 if there is none, or it is not known.
pub fn index_of(address: Ipv6Addr) -> u32 {
    let has = |interface: &&Interface| interface.addresses.iter().any(|(own, _)| *own == IpAddr::V6(address));
    interfaces().ok().and_then(|all| all.iter().find(has).map(|interface| interface.index)).unwrap_or(0)
}

/// Reports whether an address is one of this host's; true if that is not known.
pub fn is_local(address: IpAddr) -> bool {
    let has = |interface: &Interface| interface.addresses.iter().any(|(own, _)| *own == address);
    address.is_loopback() || interfaces().map_or(true, |all| all.iter().any(has))
}

/// Reports whether an address is one of the loopback interface's; false if that is not known.
pub fn is_of_loopback(address: IpAddr) -> bool {
    let has = |interface: &Interface| interface.addresses.iter().any(|(own, _)| *own == address);
    interfaces().is_ok_and(|all| all.iter().any(|interface| interface.loopback && has(interface)))
}

/// Returns the addresses that a GID table offers, best first: IPv4 of interfaces that are up, then global
/// IPv6, then link-local IPv6. 127.0.0.1 and ::1 are offered only where no other address has a carrier:
/// programs that take the first GID they find, or the last, would send them to peers on other hosts. Each
/// address comes with the interface that has it.
pub fn gid_addresses(interfaces: &[Interface]) -> Vec<(IpAddr, &Interface)> {
    let ranked = ranked_addresses(interfaces);
    let has_real = ranked.iter().any(|(address, interface)| !address.is_loopback() && interface.carrier);
    ranked.into_iter().filter(|(address, _)| !(has_real && address.is_loopback())).collect()
}

/// Returns all addresses that a GID table may have, loopback last.
fn ranked_addresses(interfaces: &[Interface]) -> Vec<(IpAddr, &Interface)> {
    let rank = |address: IpAddr| -> Option<u8> {
        match address {
            IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(3),
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(4),
            _ if address.is_loopback() || address.is_multicast() || address.is_unspecified() => None,
            IpAddr::V4(_) => Some(0),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(2),
            IpAddr::V6(_) => Some(1),
        }
    };
    let mut ranked: Vec<(u8, IpAddr, &Interface)> = interfaces
        .iter()
        .filter(|interface| interface.up)
        .flat_map(|interface| interface.addresses.iter().map(move |&(address, _)| (interface, address)))
        .filter_map(|(interface, address)| Some((rank(address)?, address, interface)))
        .collect();
    ranked.sort_by_key(|&(rank, _, _)| rank); // stable: keeps the system's order within a rank
    ranked.into_iter().map(|(_, address, interface)| (address, interface)).collect()
}

fn prefix_length(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones() as u8,
        IpAddr::V6(mask) => mask.to_bits().leading_ones() as u8,
    }
}

fn mtu(socket: &Socket, name: &str) -> Option<usize> {
    let mut request =
        libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 } };
    // The last byte stays NUL.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name of a live ifreq and writes its ifru_mtu, which was set above in any
    // case.
    let mtu = unsafe {
        let status = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request);
        (status == 0).then_some(request.ifr_ifru.ifru_mtu)
    };
    usize::try_from(mtu?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, up: bool, addresses: &[&str]) -> Interface {
        Interface {
            name: name.into(),
            index: 1,
            up,
            carrier: up,
            loopback: name == "lo",
            mtu: 1500,
            addresses: addresses.iter().map(|a| (a.parse().unwrap(), 24)).collect(),
            mac: None,
        }
    }

    #[test]
    fn the_loopback_interface_is_found_with_its_address_and_mtu() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|i| i.loopback).expect("a host has a loopback interface");
        assert!(lo.up && lo.index > 0 && lo.mtu >= 1280, "{lo:?}");
        assert!(lo.addresses.contains(&(IpAddr::V4(Ipv4Addr::LOCALHOST), 8)), "{lo:?}");
    }

    fn offered(interfaces: &[Interface]) -> Vec<String> {
        gid_addresses(interfaces).iter().map(|(a, i)| format!("{a} {}", i.name)).collect()
    }

    #[test]
    fn gid_addresses_come_best_first() {
        let all = [
            interface("lo", true, &["127.0.0.1", "::1", "192.0.2.200"]),
            interface("down", false, &["192.0.2.9"]),
            interface("eth0", true, &["fe80::1", "2001:db8::5", "192.0.2.5"]),
            interface("eth1", true, &["192.0.2.6", "fd00::6"]),
        ];
        let order = [
            "192.0.2.200 lo",
            "192.0.2.5 eth0",
            "192.0.2.6 eth1",
            "2001:db8::5 eth0",
            "fd00::6 eth1",
            "fe80::1 eth0",
        ];
        assert_eq!(offered(&all), order);
    }

    #[test]
    fn loopback_is_offered_where_there_is_nothing_else() {
        let lo = interface("lo", true, &["127.0.0.1", "::1"]);
        assert_eq!(offered(std::slice::from_ref(&lo)), ["127.0.0.1 lo", "::1 lo"]);
        let down = interface("eth0", false, &["192.0.2.5"]);
        assert_eq!(offered(&[lo.clone(), down]), ["127.0.0.1 lo", "::1 lo"]);
        let link_local = interface("eth0", true, &["fe80::1"]);
        assert_eq!(offered(&[lo, link_local]), ["fe80::1 eth0"]);
    }

    #[test]
    fn a_host_without_a_carrier_has_loopback_as_well() {
        let lo = interface("lo", true, &["127.0.0.1"]);
        let cut = Interface { carrier: false, ..interface("docker0", true, &["172.17.0.1"]) };
        assert_eq!(offered(&[lo.clone(), cut.clone()]), ["172.17.0.1 docker0", "127.0.0.1 lo"]);
        let eth0 = interface("eth0", true, &["192.0.2.5"]);
        assert_eq!(offered(&[lo, cut, eth0]), ["172.17.0.1 docker0", "192.0.2.5 eth0"]);
    }

    #[test]
    fn addresses_that_duplicate_detection_has_not_passed_are_found() {
        let text = "fe800000000000000000000000000001 02 40 20 80 eth0\n\
                    20010db8000000000000000000000001 02 40 00 c0 eth0\n\
                    20010db8000000000000000000000002 02 40 00 44 eth0\n\
                    20010db8000000000000000000000003 03 40 00 08 eth1\n\
                    nonsense\n";
        let unusable: Vec<(u32, Ipv6Addr)> = not_usable_yet(text).collect();
        let tentative = "2001:db8::1".parse().unwrap();
        let duplicate = "2001:db8::3".parse().unwrap();
        assert_eq!(unusable, [(2, tentative), (3, duplicate)], "what is optimistic may be used");
    }
}

//! The list of getifaddrs(3), as values.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use libc::{c_int, sockaddr};

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
    pub(super) netmask: Option<IpAddr>,
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

//! Addresses: their C forms, those by GID (AF_IB) included. The selection of this host's address for a peer,
//! and names, are in [`lookup`].
//!
//! Addresses by GID (AF_IB, `struct sockaddr_ib`). A RoCE GID is an IP address, so they are another notation
//! of one; the service ID contains the port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{msghdr, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use pumice_transport::mad::{PortSpace, ServiceId};
use pumice_transport::types::Gid;

use crate::abi::plain::{Plain as _, zeroed};
use crate::abi::{rdma_addrinfo, rdma_cm_join_mc_attr_ex, sockaddr_ib};
use crate::platform::{Errno, INVALID};

/// A program's pointer to an address, as a call gets it: null, or an address of the length of its family. It
/// needs no alignment.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct AddressPointer(*const sockaddr);

impl AddressPointer {
    /// Returns the source address of a structure that a program gave to a call.
    pub(crate) const fn source_of(info: &rdma_addrinfo) -> AddressPointer {
        AddressPointer(info.ai_src_addr)
    }

    /// Returns the destination address of a structure that a program gave to a call.
    pub(crate) const fn destination_of(info: &rdma_addrinfo) -> AddressPointer {
        AddressPointer(info.ai_dst_addr)
    }

    /// Returns the address of the group that a program joins.
    pub(crate) const fn of_group(attributes: &rdma_cm_join_mc_attr_ex) -> AddressPointer {
        AddressPointer(attributes.addr)
    }

    /// Returns the name of a message.
    pub(crate) const fn of_name(message: &msghdr) -> AddressPointer {
        AddressPointer(message.msg_name.cast_const().cast())
    }

    pub(crate) const NULL: AddressPointer = AddressPointer(std::ptr::null());

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the address as the program wrote it.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null, or if the address is neither an Internet address nor a GID
    /// (AF_IB).
    pub(crate) fn bytes(self) -> Result<Vec<u8>, Errno> {
        if self.is_null() {
            return Err(INVALID.because(|| "a null pointer was given where an address belongs".to_owned()));
        }
        // SAFETY: an address that is not null begins with its family.
        let family = unsafe { (&raw const (*self.0).sa_family).read_unaligned() };
        let length = length_of(family).ok_or_else(|| {
            INVALID.because(|| format!("address family {family}: addresses are AF_INET, AF_INET6 or AF_IB"))
        })?;
        // SAFETY: the program's address has the length of its family.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), length) }.to_vec())
    }

    /// Returns the address that it points at.
    ///
    /// # Errors
    /// Fails as [`AddressPointer::bytes`] and [`parse`].
    pub(crate) fn parse(self) -> Result<SocketAddr, Errno> {
        parse(&self.bytes()?)
    }

    /// Returns the address that it points at, of the given length in bytes.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null, or if there are too few bytes, and as [`parse`].
    pub(crate) fn parse_within(self, length: socklen_t) -> Result<SocketAddr, Errno> {
        let length = (length as usize).min(size_of::<sockaddr_storage>());
        if self.is_null() || length < size_of::<sockaddr_in>() {
            return Err(INVALID);
        }
        // SAFETY: the program's address has this many bytes.
        parse(unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), length) })
    }

    /// Reports whether the address is a GID (AF_IB).
    pub(crate) fn is_gid(self) -> bool {
        self.bytes().is_ok_and(|bytes| family_of(&bytes) == Some(FAMILY as sa_family_t))
    }
}

fn family_of(bytes: &[u8]) -> Option<sa_family_t> {
    bytes.first_chunk().map(|family| sa_family_t::from_ne_bytes(*family))
}

/// Returns the length in bytes of an address of a family.
fn length_of(family: sa_family_t) -> Option<usize> {
    match i32::from(family) {
        libc::AF_INET => Some(size_of::<sockaddr_in>()),
        libc::AF_INET6 => Some(size_of::<sockaddr_in6>()),
        FAMILY => Some(size_of::<sockaddr_ib>()),
        _ => None,
    }
}

/// Reads the address from these bytes.
///
/// # Errors
/// Fails with EINVAL if there are too few, with EAFNOSUPPORT if the address is neither an Internet address
/// nor a GID (AF_IB), and with EPROTONOSUPPORT if the service of a GID is none of RDMA-CM's.
pub(crate) fn parse(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    match i32::from(family_of(bytes).ok_or(INVALID)?) {
        libc::AF_INET => {
            let v4 = sockaddr_in::parse(bytes).ok_or(INVALID)?;
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            let v6 = sockaddr_in6::parse(bytes).ok_or(INVALID)?;
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Ok(match ip.to_ipv4_mapped() {
                Some(v4) => SocketAddr::new(v4.into(), port),
                None => SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into(),
            })
        }
        FAMILY => from_c(&sockaddr_ib::parse(bytes).ok_or(INVALID)?),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Returns the bytes of an address in its C form.
pub(crate) fn bytes(address: SocketAddr) -> Vec<u8> {
    let family = |number: i32| (number as sa_family_t).to_ne_bytes();
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(v4) => [&family(libc::AF_INET)[..], &port, &v4.ip().octets(), &[0; 8]].concat(),
        SocketAddr::V6(v6) => {
            let (flow, scope) = (v6.flowinfo().to_ne_bytes(), v6.scope_id().to_ne_bytes());
            [&family(libc::AF_INET6)[..], &port, &flow, &v6.ip().octets(), &scope].concat()
        }
    }
}

/// Returns an address in its C form, with its length.
pub(crate) fn to_c(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    let bytes = bytes(address);
    (storage(&bytes), bytes.len() as socklen_t)
}

/// Returns a structure for any address that contains these bytes.
pub(crate) fn storage(address: &[u8]) -> sockaddr_storage {
    let mut bytes = [0; size_of::<sockaddr_storage>()];
    bytes.iter_mut().zip(address).for_each(|(to, from)| *to = *from);
    sockaddr_storage::parse(&bytes).unwrap_or_else(zeroed)
}

/// The address family `AF_IB`.
pub(crate) const FAMILY: i32 = 27;
/// Partition key of the only partition.
const PKEY: u16 = 0xffff;

/// Returns the address and port of a program's GID and service ID.
///
/// # Errors
/// Fails with EPROTONOSUPPORT if the service is none of RDMA-CM's.
fn from_c(address: &sockaddr_ib) -> Result<SocketAddr, Errno> {
    let service = ServiceId(u64::from_be(address.sib_sid));
    let port = match service {
        ServiceId(0) => 0,
        named => named.to_rdma_cm().map(|(_, port)| port).ok_or_else(|| {
            Errno(libc::EPROTONOSUPPORT)
                .because(|| format!("service {named} is not a port of an RDMA-CM port space"))
        })?,
    };
    Ok(SocketAddr::new(IpAddr::from(Gid(address.sib_addr)), port))
}

/// Converts an address to GID and service ID. Without a port the service ID covers all of the port space.
pub(crate) fn ib_to_c(address: SocketAddr, space: PortSpace) -> sockaddr_ib {
    let port_mask: u64 = if address.port() == 0 { 0 } else { 0xffff };
    sockaddr_ib {
        sib_family: FAMILY as u16,
        sib_pkey: PKEY.to_be(),
        sib_flowinfo: 0,
        sib_addr: Gid::from(address.ip()).0,
        sib_sid: ServiceId::rdma_cm(space, address.port()).0.to_be(),
        sib_sid_mask: (!0xffff_u64 | port_mask).to_be(),
        sib_scope_id: 0,
    }
}

/// Returns the structure's bytes.
pub(crate) fn ib_bytes(address: &sockaddr_ib) -> Vec<u8> {
    let mut ib_bytes = Vec::with_capacity(size_of::<sockaddr_ib>());
    ib_bytes.extend(address.sib_family.to_ne_bytes());
    ib_bytes.extend(address.sib_pkey.to_ne_bytes());
    ib_bytes.extend(address.sib_flowinfo.to_ne_bytes());
    ib_bytes.extend(address.sib_addr);
    for word in [address.sib_sid, address.sib_sid_mask, address.sib_scope_id] {
        ib_bytes.extend(word.to_ne_bytes());
    }
    ib_bytes
}

/// Returns the port space of a number.
///
/// # Errors
/// Fails with EINVAL if there is none.
pub(crate) fn port_space(number: i32) -> Result<PortSpace, Errno> {
    u16::try_from(number).ok().and_then(PortSpace::from_number).ok_or(INVALID)
}

pub(crate) mod lookup;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_their_c_forms_are_inverses() {
        for (text, length) in [("127.104.0.1:7471", 16), ("[2001:db8::1%7]:7471", 28), ("0.0.0.0:0", 16)] {
            let address: SocketAddr = text.parse().unwrap();
            let (c, c_length) = to_c(address);
            assert_eq!(c_length, length);
            let pointer = AddressPointer((&raw const c).cast());
            assert_eq!(pointer.parse(), Ok(address));
            assert!(!pointer.is_gid());
            assert_eq!(pointer.bytes().map(|bytes| bytes.len()), Ok(length as usize));
        }
        assert_eq!(AddressPointer::NULL.parse(), Err(INVALID));
        assert!(!AddressPointer::NULL.is_gid());
        assert_eq!(parse(&[]), Err(INVALID));
        assert_eq!(parse(&[0xff; 64]), Err(Errno(libc::EAFNOSUPPORT)));
    }

    #[test]
    fn addresses_and_gids_are_inverses() {
        for text in ["127.104.0.1:7471", "[2001:db8::1]:7471", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let c = ib_to_c(address, PortSpace::Ib);
            assert_eq!(from_c(&c), Ok(address));
            assert_eq!(sockaddr_ib::parse(&ib_bytes(&c)).map(|c| from_c(&c)), Some(Ok(address)));
            assert_eq!((c.sib_family, u16::from_be(c.sib_pkey)), (27, 0xffff));
        }
        let c = ib_to_c("127.104.0.1:7471".parse().unwrap(), PortSpace::Tcp);
        assert_eq!(c.sib_sid.to_ne_bytes(), [0, 0, 0, 0, 1, 6, 0x1d, 0x2f]);
        assert_eq!(c.sib_addr, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 104, 0, 1]);
        let unknown = sockaddr_ib { sib_sid: 7_u64.to_be(), ..c };
        assert_eq!(from_c(&unknown), Err(Errno(libc::EPROTONOSUPPORT)));
        assert_eq!(from_c(&sockaddr_ib { sib_sid: 0, ..c }).unwrap().port(), 0);
    }
}

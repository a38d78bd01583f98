//! Addresses by GID (AF_IB, `struct sockaddr_ib`). A RoCE GID is an IP address, so they are another notation
//! of one; the service ID contains the port.

use std::net::{IpAddr, SocketAddr};

use pumice_transport::mad::{PortSpace, ServiceId};
use pumice_transport::types::Gid;

use crate::abi::sockaddr_ib;
use crate::platform::errno::{Errno, INVALID};

/// The address family `AF_IB`.
pub(crate) const FAMILY: i32 = 27;
/// Partition key of the only partition.
const PKEY: u16 = 0xffff;

/// Returns the address and port of a program's GID and service ID.
///
/// # Errors
/// Fails with EPROTONOSUPPORT if the service is none of RDMA-CM's.
pub(crate) fn from_c(address: &sockaddr_ib) -> Result<SocketAddr, Errno> {
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
pub(crate) fn to_c(address: SocketAddr, space: PortSpace) -> sockaddr_ib {
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
pub(crate) fn bytes(address: &sockaddr_ib) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<sockaddr_ib>());
    bytes.extend(address.sib_family.to_ne_bytes());
    bytes.extend(address.sib_pkey.to_ne_bytes());
    bytes.extend(address.sib_flowinfo.to_ne_bytes());
    bytes.extend(address.sib_addr);
    for word in [address.sib_sid, address.sib_sid_mask, address.sib_scope_id] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// Returns the port space of a number.
///
/// # Errors
/// Fails with EINVAL if there is none.
pub(crate) fn port_space(number: i32) -> Result<PortSpace, Errno> {
    u16::try_from(number).ok().and_then(PortSpace::from_number).ok_or(INVALID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::plain::Plain as _;

    #[test]
    fn addresses_and_gids_are_inverses() {
        for text in ["127.104.0.1:7471", "[2001:db8::1]:7471", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let c = to_c(address, PortSpace::Ib);
            assert_eq!(from_c(&c), Ok(address));
            assert_eq!(sockaddr_ib::parse(&bytes(&c)).map(|c| from_c(&c)), Some(Ok(address)));
            assert_eq!((c.sib_family, u16::from_be(c.sib_pkey)), (27, 0xffff));
        }
        let c = to_c("127.104.0.1:7471".parse().unwrap(), PortSpace::Tcp);
        assert_eq!(c.sib_sid.to_ne_bytes(), [0, 0, 0, 0, 1, 6, 0x1d, 0x2f]);
        assert_eq!(c.sib_addr, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 104, 0, 1]);
        let unknown = sockaddr_ib { sib_sid: 7_u64.to_be(), ..c };
        assert_eq!(from_c(&unknown), Err(Errno(libc::EPROTONOSUPPORT)));
        assert_eq!(from_c(&sockaddr_ib { sib_sid: 0, ..c }).unwrap().port(), 0);
    }
}

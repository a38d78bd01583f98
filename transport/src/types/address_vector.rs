//! Addresses in the form of verbs: GIDs and address vectors.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A GID: 16 bytes that on RoCEv2 are an IPv6 address. An IPv4 address is its v4-mapped form
/// `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The empty GID: an unused entry of a GID table, never a destination.
    pub const ZERO: Gid = Gid([0; 16]);

    /// Reports whether all bytes are zero.
    pub const fn is_zero(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// Reports whether this is a v4-mapped IPv4 address.
    pub const fn is_ipv4(self) -> bool {
        self.ipv6().to_ipv4_mapped().is_some()
    }

    /// Reports whether this is the address of a multicast group: ff00::/8, or a mapped address of
    /// 224.0.0.0/4.
    pub const fn is_multicast(self) -> bool {
        let address = self.ipv6();
        match address.to_ipv4_mapped() {
            Some(v4) => v4.is_multicast(),
            None => address.is_multicast(),
        }
    }

    const fn ipv6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.0))
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Gid {
        //= linux:ib_addr.h#rdma_ip2gid
        //| The GID of an IPv4 address is its form that is mapped to IPv6.
        Gid(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Gid {
        Gid(address.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Gid {
        match address {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<Gid> for IpAddr {
    /// Converts a v4-mapped GID to an IPv4 address, any other to an IPv6 address.
    fn from(gid: Gid) -> IpAddr {
        gid.ipv6().to_canonical()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.ipv6(), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// An address vector (`struct ibv_ah_attr`, its GRH included): destination and marks of packets. Values are
/// as the application gave them, unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AddressVector {
    /// True if the GRH fields are valid; always needed on RoCE.
    pub is_global: bool,
    /// Destination: the IP destination address.
    pub dgid: Gid,
    /// Index into the port's GID table: decides the IP source address and the IP version.
    pub sgid_index: u32,
    /// TTL / hop limit; 0 asks for the default of 64.
    pub hop_limit: u8,
    /// TOS byte / IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv6 flow label (20 bits); also chooses the UDP source port.
    pub flow_label: u32,
    /// Local port, counted from 1.
    pub port_num: u8,
    /// Service level: the VLAN priority.
    pub sl: u8,
    /// Static rate, ignored: there is no rate limiting.
    pub static_rate: u8,
    /// Destination LID, ignored on RoCE.
    pub dlid: u16,
    /// Source path bits, ignored on RoCE.
    pub src_path_bits: u8,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn ipv4_addresses_are_mapped_and_come_back() {
        let address: IpAddr = "192.168.7.1".parse().unwrap();
        let gid = Gid::from(address);
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 7, 1]);
        assert_eq!(IpAddr::from(gid), address);
        assert!(gid.is_ipv4());
        assert_eq!(gid.to_string(), "::ffff:192.168.7.1");
    }

    #[test]
    fn ipv6_addresses_are_themselves() {
        let address: IpAddr = "fe80::5054:ff:fe12:3456".parse().unwrap();
        let gid = Gid::from(address);
        assert_eq!(gid.0[..2], [0xfe, 0x80]);
        assert_eq!(IpAddr::from(gid), address);
        assert!(!gid.is_ipv4());
        assert_eq!(gid.to_string(), "fe80::5054:ff:fe12:3456");
    }

    #[test]
    fn groups_and_the_empty_gid_are_told_apart() {
        let multicast = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap()).is_multicast();
        assert!(multicast("224.0.0.1"));
        assert!(multicast("239.255.255.255"));
        assert!(multicast("ff0e::ffff:e001:203"));
        assert!(!multicast("223.255.255.255"));
        assert!(!multicast("240.0.0.0"));
        assert!(!multicast("fe80::1"));
        assert!(Gid::ZERO.is_zero());
        assert!(!Gid::from(Ipv4Addr::UNSPECIFIED).is_zero());
        assert!(!Gid::ZERO.is_ipv4());
    }
}

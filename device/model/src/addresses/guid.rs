//! The GUID of the node: the same in every process of the host, and on no other host.

use std::hash::Hasher as _;
use std::net::IpAddr;

use fnv::FnvHasher;
use pumice_platform::outside::interface::Interface;
use pumice_transport::types::Gid;

use crate::addresses::gid_table::GidEntry;

/// Returns the EUI-64 of the first interface with a link-layer address, in network byte order; else one made
/// of the first address of the GID table.
pub fn node_guid(interfaces: &[Interface], gids: &[GidEntry]) -> [u8; 8] {
    let mac = interfaces.iter().filter_map(|interface| interface.mac).find(|mac| *mac != [0; 6]);
    let [a, b, c, d, e, f] = mac.unwrap_or_else(|| {
        let [a, b, c, d] = match gids.first().map(|entry| entry.ip) {
            Some(IpAddr::V4(v4)) => v4.octets(),
            _ => [0, 0, 0, 1],
        };
        [2, 0, a, b, c, d]
    });
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns the node GUID for an adapter that is given none: the same in all processes that have its first
/// address, made as from a locally administered MAC address.
pub fn default_guid(gids: &[GidEntry]) -> u64 {
    let gid = gids.first().map_or(Gid::ZERO, |entry| entry.gid);
    let mut hasher = FnvHasher::default();
    hasher.write(&gid.0);
    let [a, b, c, d, e, f, _, _] = hasher.finish().to_be_bytes();
    u64::from_be_bytes([a & 0xfc, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests {
    use pumice_transport::types::Mtu;

    use super::*;

    #[test]
    fn a_guid_is_made_of_a_link_layer_address_or_else_of_an_address() {
        let interface = |mac| Interface {
            name: "x".to_owned(),
            index: 1,
            up: true,
            carrier: true,
            loopback: false,
            mtu: 1500,
            addresses: Vec::new(),
            mac,
        };
        let own = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
        let interfaces = [interface(None), interface(Some([0; 6])), interface(Some(own))];
        assert_eq!(node_guid(&interfaces, &[]), [0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55]);
        let gid = GidEntry::new([127, 0, 0, 9].into(), "lo", 1, Mtu::Mtu4096);
        assert_eq!(node_guid(&interfaces[..2], &[gid]), [0, 0, 127, 0xff, 0xfe, 0, 0, 9]);
        assert_eq!(node_guid(&[], &[]), [0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    }
}

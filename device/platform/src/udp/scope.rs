//! The interface of a link-local destination. fe80::/64 is on every link, as are the groups ff02::, and a GID
//! names no link: as on Linux it is the one of the address that is sent from.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::outside::interface;

/// Number of addresses that are cached; a host has few.
const MAX_KNOWN: usize = 1024;

/// Cached interfaces of this host's addresses, as far as they were asked for.
#[derive(Debug, Default)]
pub struct Scopes(BTreeMap<Ipv6Addr, u32>);

impl Scopes {
    /// Returns the index to send with from `source` to `destination`: 0 for a destination that needs none,
    /// and if no interface has the source (the kernel refuses the packet then).
    pub fn scope_id(&mut self, source: IpAddr, destination: IpAddr) -> u32 {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) else { return 0 };
        if !has_scope(destination) {
            return 0;
        }
        if self.0.len() >= MAX_KNOWN {
            self.0.clear();
        }
        *self.0.entry(source).or_insert_with(|| interface::index_of(source))
    }

    /// Clears the cache after a packet was refused: addresses may have moved to another interface.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// Reports whether an address means something else on each link (fe80::, ff02::), or on each interface
/// (ff01::).
pub const fn has_scope(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local() || address.is_multicast() && matches!(address.octets()[1] & 0xf, 1 | 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_local_destinations_have_a_scope() {
        let mut scopes = Scopes::default();
        let [own, link_local, global, v4]: [IpAddr; 4] =
            ["::1", "fe80::2", "2001:db8::2", "192.0.2.1"].map(|text| text.parse().unwrap());
        assert_eq!(scopes.scope_id(own, global), 0);
        assert_eq!(scopes.scope_id(v4, v4), 0);
        assert_eq!(scopes.0.len(), 0, "the interfaces were not listed");
        let lo = interface::interfaces()
            .unwrap()
            .into_iter()
            .find(|each| each.addresses.iter().any(|(a, _)| *a == own));
        assert_eq!(scopes.scope_id(own, link_local), lo.as_ref().map_or(0, |lo| lo.index));
        for (group, index) in [("ff01::7", 1), ("ff12::7", 1), ("ff05::7", 0), ("ff0e::2", 0)] {
            let expected = lo.as_ref().map_or(0, |lo| lo.index * index);
            assert_eq!(scopes.scope_id(own, group.parse().unwrap()), expected, "{group}");
        }
        assert_eq!(scopes.scope_id(global, link_local), 0, "documentation addresses are no host's");
        scopes.forget();
        assert_eq!(scopes.0.len(), 0);
    }
}

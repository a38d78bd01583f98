//! Addresses at which a listener offers its service.

use crate::types::Gid;

/// Addresses of the host at which a service is offered. If several listeners fit a request, the last one in
/// this order gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ListenScope {
    /// All addresses.
    #[default]
    Everywhere,
    /// All IPv4 addresses.
    Ipv4,
    /// All IPv6 addresses.
    Ipv6,
    /// A single address.
    At(Gid),
}

impl ListenScope {
    /// Returns the scope of all addresses of this address's family.
    pub const fn family_of(address: Gid) -> ListenScope {
        if address.is_ipv4() { ListenScope::Ipv4 } else { ListenScope::Ipv6 }
    }

    /// Reports whether the scope contains an address.
    pub fn serves(self, address: Gid) -> bool {
        match self {
            ListenScope::Everywhere => true,
            ListenScope::At(own) => own == address,
            family => family == ListenScope::family_of(address),
        }
    }

    /// Reports whether the two scopes have an address in common.
    pub fn overlaps(self, other: ListenScope) -> bool {
        match (self, other) {
            (ListenScope::Everywhere, _) | (_, ListenScope::Everywhere) => true,
            (ListenScope::At(address), scope) | (scope, ListenScope::At(address)) => scope.serves(address),
            _ => self == other,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn scopes_overlap_if_an_address_is_in_both() {
        let (v4, other_v4) = (Gid::from(Ipv4Addr::new(10, 0, 0, 1)), Gid::from(Ipv4Addr::new(10, 0, 0, 2)));
        let v6 = Gid([0xfd; 16]);
        let scopes = [
            ListenScope::Everywhere,
            ListenScope::Ipv4,
            ListenScope::Ipv6,
            ListenScope::At(v4),
            ListenScope::At(other_v4),
            ListenScope::At(v6),
        ];
        for a in scopes {
            for b in scopes {
                let shared =
                    [v4, other_v4, v6].into_iter().any(|address| a.serves(address) && b.serves(address));
                assert_eq!(a.overlaps(b), shared, "{a:?} and {b:?}");
            }
        }
    }
}

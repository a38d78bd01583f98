//! Where a service is offered.

use crate::types::Gid;

/// At which of the host's addresses a service is offered. Of several that serve a request, the last in this
/// order has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ListenScope {
    /// At all addresses.
    #[default]
    Everywhere,
    /// At all IPv4 addresses.
    Ipv4,
    /// At all IPv6 addresses.
    Ipv6,
    /// At one.
    At(Gid),
}

impl ListenScope {
    /// All addresses of this one's family.
    pub const fn family_of(address: Gid) -> ListenScope {
        if address.is_ipv4() { ListenScope::Ipv4 } else { ListenScope::Ipv6 }
    }

    /// Whether a request to this address is meant.
    pub fn serves(self, address: Gid) -> bool {
        match self {
            ListenScope::Everywhere => true,
            ListenScope::At(own) => own == address,
            family => family == ListenScope::family_of(address),
        }
    }

    /// Whether a request to some address is meant for both.
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

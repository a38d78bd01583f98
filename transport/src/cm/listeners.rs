//! The listeners of a process, and the search for the one that a request is for.
//!
//! Addresses at which a listener offers its service.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::mad::{ServiceId, TransportType};
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

/// Identifier of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// Answer to a request that finds the backlog full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BacklogOverflow {
    /// A REJ with the reason "no resources" (a SIDR_REP with "no queue pair").
    #[default]
    Reject,
    /// No answer, as in Linux: the peer asks again after its timeout.
    Ignore,
}

/// Kinds of request that a listener serves. A request of another kind is rejected in the consumer's name, as
/// in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// Connections of any transport, and datagrams.
    Anything,
    /// Connections of any transport. Questions for datagram queue pairs are rejected: the program takes none,
    /// so they would stay in its backlog.
    AnyConnection,
    /// Connections of one transport.
    Connections(TransportType),
    /// Questions for a datagram queue pair.
    Datagrams,
}

/// Parameters of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenParams {
    /// The service, or with a mask several services.
    pub service_id: ServiceId,
    /// Mask of the service id's significant bits.
    pub mask: u64,
    /// Addresses at which the service is offered.
    pub scope: ListenScope,
    /// Kinds of request that are served.
    pub served: Served,
    /// Largest number of requests that wait: neither taken (see
    /// [`Cm::take_request`](super::Cm::take_request)) nor answered.
    pub backlog: usize,
    /// Answer to requests beyond the backlog.
    pub overflow: BacklogOverflow,
}

impl ListenParams {
    /// Creates the parameters of one service at all addresses, for requests of every kind.
    pub const fn new(service_id: ServiceId, backlog: usize) -> ListenParams {
        ListenParams {
            service_id,
            mask: u64::MAX,
            scope: ListenScope::Everywhere,
            served: Served::Anything,
            backlog,
            overflow: BacklogOverflow::Reject,
        }
    }

    fn is_single(&self) -> bool {
        self.mask == u64::MAX
    }

    const fn key(&self) -> (ServiceId, ListenScope) {
        (self.service_id, self.scope)
    }

    const fn serves(&self, service_id: ServiceId) -> bool {
        (self.service_id.0 ^ service_id.0) & self.mask == 0
    }
}

#[derive(Debug)]
pub(super) struct CmListener {
    params: ListenParams,
    waiting: usize,
}

/// The listeners of a process.
#[derive(Debug)]
pub(super) struct Listeners {
    limit: usize,
    next: u32,
    listeners: BTreeMap<ListenerId, CmListener>,
    /// Listeners for one service, by service and scope: there may be thousands.
    single: BTreeMap<(ServiceId, ListenScope), ListenerId>,
    /// Listeners for several services, of which there are few.
    several: BTreeSet<ListenerId>,
}

impl Listeners {
    pub(super) const fn new(limit: usize) -> Listeners {
        Listeners {
            limit,
            next: 0,
            listeners: BTreeMap::new(),
            single: BTreeMap::new(),
            several: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.listeners.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Finds the listener that serves this service at this address.
    pub(super) fn find(&self, service_id: ServiceId, local: Gid) -> Option<ListenerId> {
        let serves =
            |listener: &CmListener| listener.params.serves(service_id) && listener.params.scope.serves(local);
        let scopes = [ListenScope::At(local), ListenScope::family_of(local), ListenScope::Everywhere];
        let single = scopes.map(|scope| self.single.get(&(service_id, scope)));
        let candidates = single.into_iter().flatten().chain(&self.several);
        let found = candidates.filter_map(|id| Some((id, self.listeners.get(id)?)));
        let found = found.filter(|(_, listener)| serves(listener));
        found.max_by_key(|(id, listener)| (listener.params.scope, u32::MAX - id.0)).map(|(id, _)| *id)
    }

    /// Reports whether another listener has the same services at the same addresses.
    pub(super) fn is_taken(&self, params: &ListenParams) -> bool {
        let same = |other: &ListenParams| {
            other.scope == params.scope
                && (other.service_id.0 ^ params.service_id.0) & other.mask & params.mask == 0
        };
        if params.is_single() {
            let several = self.several.iter().filter_map(|id| self.listeners.get(id));
            return self.single.contains_key(&params.key()) || several.map(|other| &other.params).any(same);
        }
        self.listeners.values().any(|other| same(&other.params))
    }

    /// Returns the limit of listeners if it is reached.
    pub(super) fn full(&self) -> Option<usize> {
        (self.listeners.len() >= self.limit).then_some(self.limit)
    }

    /// Adds a listener. The caller has checked with [`Listeners::full`] that there is room.
    pub(super) fn add(&mut self, params: &ListenParams) -> ListenerId {
        // There are fewer listeners than numbers, so one is free.
        while self.listeners.contains_key(&ListenerId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let id = ListenerId(self.next);
        self.next = self.next.wrapping_add(1);
        self.insert(id, params);
        id
    }

    fn insert(&mut self, id: ListenerId, params: &ListenParams) {
        if params.is_single() {
            self.single.insert(params.key(), id);
        } else {
            self.several.insert(id);
        }
        self.listeners.insert(id, CmListener { params: *params, waiting: 0 });
    }

    pub(super) fn remove(&mut self, id: ListenerId) -> Option<CmListener> {
        let listener = self.listeners.remove(&id)?;
        if listener.params.is_single() {
            self.single.remove(&listener.params.key());
        } else {
            self.several.remove(&id);
        }
        Some(listener)
    }

    /// Reports whether a listener serves requests of the kind `wanted`.
    pub(super) fn serves(&self, id: ListenerId, wanted: Served) -> bool {
        let served = self.listeners.get(&id).map(|listener| listener.params.served);
        served.is_some_and(|served| match served {
            Served::Anything => true,
            Served::AnyConnection => matches!(wanted, Served::Connections(_)),
            one => one == wanted,
        })
    }

    /// Counts one more waiting request of a listener.
    ///
    /// # Errors
    /// If the backlog is full, fails with the answer that the request is to get.
    pub(super) fn enqueue(&mut self, id: ListenerId) -> Result<(), BacklogOverflow> {
        let Some(listener) = self.listeners.get_mut(&id) else { return Err(BacklogOverflow::Reject) };
        if listener.waiting >= listener.params.backlog {
            return Err(listener.params.overflow);
        }
        listener.waiting += 1;
        Ok(())
    }

    pub(super) fn dequeue(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(&id) {
            listener.waiting = listener.waiting.saturating_sub(1);
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

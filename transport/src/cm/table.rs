//! The table of connections, its indexes, and its timers.

use alloc::collections::{BTreeMap, BTreeSet};

use super::MadRoute;
use super::connection::{CmConnection, RemoteEnd};
use crate::mad::CommId;

/// All connections of a process.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    connections: BTreeMap<CommId, CmConnection>,
    /// Index by the peer's communication id: repeated requests, rejections by timeout.
    remote_ids: BTreeMap<RemoteEnd, CommId>,
    /// Index by the peer's queue pair: connections that the peer has lost.
    remote_queue_pairs: BTreeMap<RemoteEnd, CommId>,
    /// Index by the peer's request id: repeated questions for a datagram queue pair.
    sidr_requests: BTreeMap<RemoteEnd, CommId>,
    timers: BTreeSet<(u64, CommId)>,
}

impl ConnectionTable {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
            && self.remote_ids.is_empty()
            && self.remote_queue_pairs.is_empty()
            && self.sidr_requests.is_empty()
            && self.timers.is_empty()
    }

    pub(super) fn insert(&mut self, id: CommId, connection: CmConnection) {
        self.connections.insert(id, connection);
    }

    pub(super) fn contains(&self, id: CommId) -> bool {
        self.connections.contains_key(&id)
    }

    pub(super) fn get(&self, id: CommId) -> Option<&CmConnection> {
        self.connections.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: CommId) -> Option<&mut CmConnection> {
        self.connections.get_mut(&id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = (CommId, &CmConnection)> {
        self.connections.iter().map(|(id, connection)| (*id, connection))
    }

    /// Returns the connection `local` if its other end is `remote` at the sender's address.
    pub(super) fn between(
        &mut self,
        local: CommId,
        remote: CommId,
        route: &MadRoute,
    ) -> Option<&mut CmConnection> {
        self.connections
            .get_mut(&local)
            .filter(|connection| connection.remote_id == remote && connection.route.remote == route.remote)
    }

    /// Removes a connection and all index entries that lead to it.
    pub(super) fn remove(&mut self, id: CommId) {
        self.disarm(id);
        self.forget_remote_id(id);
        self.forget_remote_queue_pair(id);
        self.forget_sidr_request(id);
        self.connections.remove(&id);
    }

    pub(super) fn by_remote_id(&self, end: &RemoteEnd) -> Option<CommId> {
        self.remote_ids.get(end).copied()
    }

    pub(super) fn by_remote_queue_pair(&self, end: &RemoteEnd) -> Option<CommId> {
        self.remote_queue_pairs.get(end).copied()
    }

    pub(super) fn by_sidr_request(&self, end: &RemoteEnd) -> Option<CommId> {
        self.sidr_requests.get(end).copied()
    }

    /// Adds a connection to the indexes by the peer's id and by the peer's queue pair.
    pub(super) fn index_remote(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get(&id) {
            self.remote_ids.insert(connection.remote_end(), id);
            self.remote_queue_pairs.insert(connection.remote_queue_pair(), id);
        }
    }

    pub(super) fn index_sidr_request(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get(&id) {
            self.sidr_requests.insert(connection.remote_end(), id);
        }
    }

    pub(super) fn forget_remote_id(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get(&id) {
            forget(&mut self.remote_ids, &connection.remote_end(), id);
        }
    }

    pub(super) fn forget_remote_queue_pair(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get(&id) {
            forget(&mut self.remote_queue_pairs, &connection.remote_queue_pair(), id);
        }
    }

    pub(super) fn forget_sidr_request(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get(&id) {
            forget(&mut self.sidr_requests, &connection.remote_end(), id);
        }
    }

    /// Sets the timer of a connection.
    pub(super) fn arm(&mut self, id: CommId, deadline_ns: u64) {
        self.disarm(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.deadline_ns = Some(deadline_ns);
            self.timers.insert((deadline_ns, id));
        }
    }

    pub(super) fn disarm(&mut self, id: CommId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && let Some(deadline_ns) = connection.deadline_ns.take()
        {
            self.timers.remove(&(deadline_ns, id));
        }
    }

    #[inline]
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.timers.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// Takes the earliest timer that is due and returns its connection.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<CommId> {
        let (deadline_ns, id) = *self.timers.first()?;
        if deadline_ns > now_ns {
            return None;
        }
        self.disarm(id);
        Some(id)
    }
}

/// Removes an index entry, unless it leads to another connection by now.
fn forget(index: &mut BTreeMap<RemoteEnd, CommId>, end: &RemoteEnd, id: CommId) {
    if index.get(end) == Some(&id) {
        index.remove(end);
    }
}

//! Peers on this host whose process dies.
//!
//! The kernel's connection manager disconnects for a process that was killed. Here the connection manager dies with its
//! process, and a peer that has nothing to send would never know. Processes that share the registry see who lives, so as
//! long as there are connections to some of them, they look every second. A connection whose peer has died ends as if
//! the peer had disconnected. On other hosts it is what the program sends that finds it out.

use std::collections::BTreeMap;

use pumice_transport::mad::CommId;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

use super::{Gsi, Occupant};
use crate::port::Port;

/// Between two looks.
const LOOK_NS: u64 = 1_000_000_000;
/// Processes elsewhere that are remembered as such.
const MAX_ELSEWHERE: usize = 1024;

/// A process, as the connection manager knows it: its index, and the address at which it is.
type PeerProcess = (ProcessIndex, Gid);

/// The processes that connections lead to.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// On this host, and who they are.
    here: BTreeMap<PeerProcess, u64>,
    /// On other hosts, and this process itself.
    elsewhere: BTreeMap<PeerProcess, ()>,
    next_look_ns: Option<u64>,
}

impl Watch {
    pub(super) fn next_look_ns(&self) -> Option<u64> {
        self.next_look_ns
    }
}

impl Gsi {
    /// A connection is established: its peer's process is watched from now on, if it is on this host.
    pub(crate) fn watch(&mut self, id: CommId, now_ns: u64, port: &mut dyn Port) {
        let Some(peer) = self.cm.peer(id).map(process) else { return };
        let watch = &mut self.watch;
        if watch.here.contains_key(&peer) || watch.elsewhere.contains_key(&peer) {
            return;
        }
        let Some(directory) = port.group().and_then(|group| group.services()) else { return };
        match directory.occupant(peer.0, peer.1) {
            Occupant::Process(who) => {
                watch.here.insert(peer, who);
                watch.next_look_ns.get_or_insert(now_ns.saturating_add(LOOK_NS));
            }
            Occupant::Nobody => {
                if watch.elsewhere.len() >= MAX_ELSEWHERE {
                    watch.elsewhere.clear();
                }
                watch.elsewhere.insert(peer, ());
            }
            Occupant::Unknown => {}
        }
    }

    /// Looks who has died, if it is time to.
    pub(super) fn look_after_peers(&mut self, now_ns: u64, port: &mut dyn Port) {
        if self.watch.next_look_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        let mut connections: BTreeMap<PeerProcess, Vec<CommId>> = BTreeMap::new();
        for id in self.cm.established() {
            let peer = self.cm.peer(id).map(process);
            if let Some(peer) = peer.filter(|peer| self.watch.here.contains_key(peer)) {
                connections.entry(peer).or_default().push(id);
            }
        }
        self.watch.here.retain(|peer, _| connections.contains_key(peer));
        for (peer, ids) in connections {
            let Some(directory) = port.group().and_then(|group| group.services()) else { continue };
            if !self.watch.here.get(&peer).is_some_and(|who| directory.lives(peer.0, *who)) {
                self.watch.here.remove(&peer);
                ids.into_iter().for_each(|id| self.cm.peer_died(id));
            }
        }
        self.watch.next_look_ns =
            if self.watch.here.is_empty() { None } else { Some(now_ns.saturating_add(LOOK_NS)) };
        self.deliver(now_ns);
    }
}

fn process((remote_id, address): (CommId, Gid)) -> PeerProcess {
    (ProcessIndex::new(remote_id.slot()), address)
}

//! Peers on this host whose process dies.
//!
//! The kernel's connection manager disconnects for a process that was killed. Here the connection manager
//! dies with its process, and a peer that has nothing to send would never know. Processes that share the
//! registry see who lives, so as long as there are connections to some of them, they look every second. A
//! connection whose peer has died ends as if the peer had disconnected. On other hosts it is what the program
//! sends that finds it out.

use std::collections::BTreeMap;

use pumice_transport::cm::Cm;
use pumice_transport::mad::CommId;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

use crate::{Occupant, Port};

/// Between two looks.
const LOOK_NS: u64 = 1_000_000_000;
/// Processes elsewhere that are remembered as such.
const MAX_ELSEWHERE: usize = 1024;

/// A process, as the connection manager knows it: its index, and the address at which it is.
type PeerProcess = (ProcessIndex, Gid);

/// The processes that connections lead to.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// On this host, and who they are.
    here: BTreeMap<PeerProcess, u64>,
    /// On other hosts, and this process itself.
    elsewhere: BTreeMap<PeerProcess, ()>,
    next_look_ns: Option<u64>,
}

impl Peers {
    /// When they are looked at next.
    #[inline]
    pub(crate) fn next_look_ns(&self) -> Option<u64> {
        self.next_look_ns
    }

    /// A connection is established: its peer's process is watched from now on, if it is on this host.
    pub(crate) fn watch(&mut self, id: CommId, cm: &Cm, now_ns: u64, port: &mut dyn Port) {
        let Some(peer) = cm.peer(id).map(process) else { return };
        if self.here.contains_key(&peer) || self.elsewhere.contains_key(&peer) {
            return;
        }
        let Some(directory) = port.group().and_then(|group| group.services()) else { return };
        match directory.occupant(peer.0, peer.1) {
            Occupant::Process(who) => {
                self.here.insert(peer, who);
                self.next_look_ns.get_or_insert(now_ns.saturating_add(LOOK_NS));
            }
            Occupant::NoProcess => {
                if self.elsewhere.len() >= MAX_ELSEWHERE {
                    self.elsewhere.clear();
                }
                self.elsewhere.insert(peer, ());
            }
            Occupant::Unknown => {}
        }
    }

    /// Looks which processes have died, if it is time to, and ends the connections to them. True: it was
    /// time.
    pub(crate) fn look(&mut self, now_ns: u64, cm: &mut Cm, port: &mut dyn Port) -> bool {
        if self.next_look_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return false;
        }
        let mut connections: BTreeMap<PeerProcess, Vec<CommId>> = BTreeMap::new();
        for id in cm.established() {
            let peer = cm.peer(id).map(process);
            if let Some(peer) = peer.filter(|peer| self.here.contains_key(peer)) {
                connections.entry(peer).or_default().push(id);
            }
        }
        self.here.retain(|peer, _| connections.contains_key(peer));
        for (peer, ids) in connections {
            let Some(directory) = port.group().and_then(|group| group.services()) else { continue };
            if !self.here.get(&peer).is_some_and(|who| directory.lives(peer.0, *who)) {
                self.here.remove(&peer);
                ids.into_iter().for_each(|id| cm.peer_died(id));
            }
        }
        self.next_look_ns = if self.here.is_empty() { None } else { Some(now_ns.saturating_add(LOOK_NS)) };
        true
    }
}

fn process((remote_id, address): (CommId, Gid)) -> PeerProcess {
    (remote_id.process(), address)
}

//! Peers on this host whose process dies.
//!
//! The kernel's connection manager disconnects for a process that was killed. Here the connection manager
//! dies with its process, and a peer that has nothing to send would never know. Processes that share the
//! registry see which processes live, so as long as there are connections to some of them, they check every
//! second. A connection whose peer has died ends as if the peer had disconnected. The death of a process on
//! another host is noticed only when the program sends; the same holds for a process on this host while a
//! fault plan separates the two, because no packet of a kernel would pass.

use std::collections::BTreeMap;

use pumice_transport::cm::Cm;
use pumice_transport::mad::CommId;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

use pumice_model::port::Port;
use pumice_model::port::directory::Occupant;

/// Time between two checks, in nanoseconds.
const CHECK_INTERVAL_NS: u64 = 1_000_000_000;
/// Number of processes elsewhere that are remembered as such.
const MAX_ON_OTHER_HOSTS: usize = 1024;

/// A process, as the connection manager knows it: its index, and its address.
type PeerProcess = (ProcessIndex, Gid);

/// The processes that connections lead to.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Processes on this host, with the number that identifies each.
    on_this_host: BTreeMap<PeerProcess, u64>,
    /// Processes on other hosts, and this process itself.
    on_other_hosts: BTreeMap<PeerProcess, ()>,
    next_check_ns: Option<u64>,
}

impl Peers {
    /// Returns the time of the next check.
    #[inline]
    pub(crate) fn next_check_ns(&self) -> Option<u64> {
        self.next_check_ns
    }

    /// Watches the process of an established connection's peer from now on, if it is on this host.
    pub(crate) fn watch(&mut self, id: CommId, cm: &Cm, now_ns: u64, port: &mut dyn Port) {
        let Some(peer) = cm.peer(id).map(process) else { return };
        if self.on_this_host.contains_key(&peer) || self.on_other_hosts.contains_key(&peer) {
            return;
        }
        let Some(directory) = port.group().and_then(|group| group.services()) else { return };
        match directory.occupant(peer.0, peer.1) {
            Occupant::Process(who) => {
                self.on_this_host.insert(peer, who);
                self.next_check_ns.get_or_insert(now_ns.saturating_add(CHECK_INTERVAL_NS));
            }
            Occupant::NoProcess => {
                if self.on_other_hosts.len() >= MAX_ON_OTHER_HOSTS {
                    self.on_other_hosts.clear();
                }
                self.on_other_hosts.insert(peer, ());
            }
            Occupant::Unknown => {}
        }
    }

    /// Checks which processes have died, if it is time to, and ends the connections to them. Returns true if
    /// it was time.
    pub(crate) fn look(&mut self, now_ns: u64, cm: &mut Cm, port: &mut dyn Port) -> bool {
        if self.next_check_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return false;
        }
        let mut connections: BTreeMap<PeerProcess, Vec<CommId>> = BTreeMap::new();
        for id in cm.established() {
            let peer = cm.peer(id).map(process);
            if let Some(peer) = peer.filter(|peer| self.on_this_host.contains_key(peer)) {
                connections.entry(peer).or_default().push(id);
            }
        }
        self.on_this_host.retain(|peer, _| connections.contains_key(peer));
        for (peer, ids) in connections {
            let Some(directory) = port.group().and_then(|group| group.services()) else { continue };
            let Some(who) = self.on_this_host.get(&peer).copied() else { continue };
            if !directory.lives(peer.0, who) && !directory.is_partitioned(peer.0, who, peer.1, now_ns) {
                self.on_this_host.remove(&peer);
                ids.into_iter().for_each(|id| cm.peer_died(id));
            }
        }
        self.next_check_ns =
            if self.on_this_host.is_empty() { None } else { Some(now_ns.saturating_add(CHECK_INTERVAL_NS)) };
        true
    }
}

fn process((remote_id, address): (CommId, Gid)) -> PeerProcess {
    (remote_id.process(), address)
}

//! Pacing: a limit on the unanswered messages to one peer.
//!
//! A peer has room for a limited number of MADs (the receive queue of its queue pair 1, a socket's buffer)
//! and its listener for a limited number of requests. MADs beyond that are lost, and repeated only seconds
//! later. So a burst waits here: a request, a disconnection or a question is sent when an earlier one to the
//! same address has been answered, or has been unanswered for [`HOLD_NS`], because its answer may take long
//! or never arrive.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::mad::CommId;
use crate::types::Gid;

/// Largest number of unanswered messages to one address.
const WINDOW: usize = 128;
/// Time for which an unanswered message counts as under way, in nanoseconds.
pub(super) const HOLD_NS: u64 = 20_000_000;

/// Pacing state of a connection's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Pace {
    /// The message waits for no answer, or does not count any more.
    #[default]
    Free,
    /// The message counts as under way until this time.
    UnderWay(u64),
    /// The message waits to be sent, with this number in the queue.
    Waiting(u64),
}

#[derive(Debug, Default)]
struct PeerPacing {
    under_way: BTreeSet<(u64, CommId)>,
    waiting: BTreeMap<u64, CommId>,
}

/// The unanswered and the waiting messages of each address.
#[derive(Debug)]
pub(super) struct Pacer {
    window: usize,
    peers: BTreeMap<[u8; 16], PeerPacing>,
    /// Addresses for which a message waits to be sent.
    crowded: BTreeSet<[u8; 16]>,
    /// Number of the next waiting message; messages are sent in this order.
    next_number: u64,
}

impl Default for Pacer {
    fn default() -> Pacer {
        Pacer { window: WINDOW, peers: BTreeMap::new(), crowded: BTreeSet::new(), next_number: 0 }
    }
}

impl Pacer {
    /// Admits a new message of a connection: it may be sent at once, or has to wait.
    pub(super) fn admit(&mut self, id: CommId, peer: &Gid, now_ns: u64) -> Pace {
        let entry = self.peers.entry(peer.0).or_default();
        entry.forget(now_ns);
        if entry.under_way.len() < self.window && entry.waiting.is_empty() {
            return entry.send(id, now_ns);
        }
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        entry.waiting.insert(number, id);
        self.crowded.insert(peer.0);
        Pace::Waiting(number)
    }

    /// Removes the message of a connection, because an answer arrived or none is wanted any more.
    pub(super) fn settle(&mut self, id: CommId, peer: &Gid, pace: Pace) {
        let Some(entry) = self.peers.get_mut(&peer.0) else { return };
        match pace {
            Pace::Free => return,
            Pace::UnderWay(until_ns) => drop(entry.under_way.remove(&(until_ns, id))),
            Pace::Waiting(number) => drop(entry.waiting.remove(&number)),
        }
        self.tidy(&peer.0);
    }

    /// Returns the next connection that may send, and its new pacing state.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<(CommId, Pace)> {
        let window = self.window;
        let (peer, id, pace) = self.crowded.iter().find_map(|peer| {
            let entry = self.peers.get_mut(peer)?;
            entry.forget(now_ns);
            if entry.under_way.len() >= window {
                return None;
            }
            let (_, id) = entry.waiting.pop_first()?;
            Some((*peer, id, entry.send(id, now_ns)))
        })?;
        self.tidy(&peer);
        Some((id, pace))
    }

    fn tidy(&mut self, peer: &[u8; 16]) {
        let Some(entry) = self.peers.get(peer) else { return };
        if entry.waiting.is_empty() {
            self.crowded.remove(peer);
            if entry.under_way.is_empty() {
                self.peers.remove(peer);
            }
        }
    }

    /// Returns the time at which a waiting message may be sent although no other was answered.
    #[inline]
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        let first = |peer| {
            let entry = self.peers.get(peer)?;
            let has_room = entry.under_way.len() < self.window;
            if has_room { Some(0) } else { entry.under_way.first().map(|(until_ns, _)| *until_ns) }
        };
        self.crowded.iter().filter_map(first).min()
    }

    /// Removes the limit, so that every waiting message may be sent.
    pub(super) fn open_window(&mut self) {
        self.window = usize::MAX;
    }

    /// Reports whether a message waits for others to be answered.
    pub(super) fn has_waiting(&self) -> bool {
        !self.crowded.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.crowded.is_empty()
    }
}

impl PeerPacing {
    fn send(&mut self, id: CommId, now_ns: u64) -> Pace {
        let until_ns = now_ns.saturating_add(HOLD_NS);
        self.under_way.insert((until_ns, id));
        Pace::UnderWay(until_ns)
    }

    /// Stops counting messages that have been under way for [`HOLD_NS`].
    fn forget(&mut self, now_ns: u64) {
        while self.under_way.first().is_some_and(|(until_ns, _)| *until_ns <= now_ns) {
            self.under_way.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const ONE: Gid = Gid([1; 16]);
    const OTHER: Gid = Gid([2; 16]);

    fn id(number: usize) -> CommId {
        CommId(number as u32 + 1)
    }

    #[test]
    fn a_burst_goes_window_by_window_and_other_peers_do_not_wait() {
        let mut pacer = Pacer::default();
        let paces: Vec<Pace> = (0..WINDOW + 3).map(|n| pacer.admit(id(n), &ONE, 0)).collect();
        assert!(paces[..WINDOW].iter().all(|pace| *pace == Pace::UnderWay(HOLD_NS)));
        assert!(matches!(paces[WINDOW..], [Pace::Waiting(0), Pace::Waiting(1), Pace::Waiting(2)]));
        assert_eq!(pacer.admit(id(999), &OTHER, 5), Pace::UnderWay(HOLD_NS + 5));
        assert_eq!((pacer.next(1), pacer.next_deadline_ns()), (None, Some(HOLD_NS)));
        // One message is answered, and one that waits gives up.
        pacer.settle(id(7), &ONE, paces[7]);
        pacer.settle(id(WINDOW), &ONE, paces[WINDOW]);
        assert_eq!(pacer.next(1), Some((id(WINDOW + 1), Pace::UnderWay(HOLD_NS + 1))));
        assert_eq!(pacer.next(1), None);
        // No message is answered any more.
        let last = Some((id(WINDOW + 2), Pace::UnderWay(2 * HOLD_NS)));
        assert_eq!((pacer.next(HOLD_NS), pacer.next_deadline_ns()), (last, None));
        for (n, pace) in [(WINDOW + 1, HOLD_NS + 1), (WINDOW + 2, 2 * HOLD_NS)] {
            pacer.settle(id(n), &ONE, Pace::UnderWay(pace));
        }
        pacer.settle(id(999), &OTHER, Pace::UnderWay(HOLD_NS + 5));
        assert!(pacer.is_empty());
    }
}

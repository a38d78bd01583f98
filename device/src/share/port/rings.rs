//! What a shared port sends and receives through rings, and how it divides its looks between them and the
//! socket.

use std::os::fd::OwnedFd;

use pumice_transport::path::Path;

use super::SharedPort;
use super::counters::count;
use super::receiving::is_for;
use crate::port::{GsoBatch, Peer, Received, TransmitError};
use crate::share::medium::Medium;
use crate::share::same_host::{Put, Room, Says, Took};
use crate::share::sockets::Sent;

/// Batches that are taken from rings in a row before the socket gets a look.
const RING_BATCHES: u32 = 32;
/// Time between two looks at the socket while rings are there and nothing comes by UDP: a look is a system
/// call, and costs as much as ten batches in a ring.
const SOCKET_INTERVAL_NS: u64 = 16_000;
/// How long after a datagram each look goes to the socket as well.
const SOCKET_BUSY_NS: u64 = 200_000;
/// Time between two looks whether the processes at the other ends of rings live.
const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;

/// When the socket is looked at beside the rings.
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// Batches from rings since the last look at the socket.
    ring_batches: u32,
    /// When a look at the socket is due though there are rings.
    due_ns: u64,
    /// When something came by UDP last.
    came_ns: u64,
    swept_ns: u64,
}

impl Looking {
    /// A ring had a batch. True: the socket gets a look, too.
    fn took_from_ring(&mut self) -> bool {
        self.ring_batches += 1;
        let is_due = self.ring_batches >= RING_BATCHES;
        if is_due {
            self.ring_batches = 0;
        }
        is_due
    }

    /// Whether the socket is looked at now that all rings are empty.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// The socket was looked at; whether there was something.
    pub(super) fn looked(&mut self, now_ns: u64, found: bool) {
        self.ring_batches = 0;
        if found {
            self.came_ns = now_ns;
        }
        let is_busy = self.came_ns != 0 && now_ns.saturating_sub(self.came_ns) < SOCKET_BUSY_NS;
        self.due_ns = if is_busy { 0 } else { now_ns.saturating_add(SOCKET_INTERVAL_NS) };
    }

    /// The socket is readable.
    pub(super) fn woken(&mut self) {
        self.due_ns = 0;
    }
}

/// What a look at the rings brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingLook {
    /// A batch: enough for now.
    Batch,
    /// A batch, and the socket is due.
    BatchAndSocket,
    /// Nothing.
    Nothing,
}

impl<M: Medium> SharedPort<M> {
    /// Sends a batch through a ring. `None`: it goes by UDP.
    #[inline]
    pub(super) fn transmit_by_ring(
        &mut self,
        now_ns: u64,
        batch: &GsoBatch<'_>,
    ) -> Option<Result<(), TransmitError>> {
        let peer = batch.peer();
        if !peer.process.is_of_process() || peer.address.is_multicast() {
            return None;
        }
        if !self.same_host.knows(peer.process, batch.path) {
            if !self.may_meet(batch.path, peer) {
                return None;
            }
            if !self.same_host.is_open(peer.process) {
                self.invite(now_ns, peer);
                return None;
            }
        }
        let incarnation = self.backlog.as_ref()?.incarnation(peer.process);
        if self.same_host.put(now_ns, peer.process, incarnation, batch)? == Put::Lost {
            count(&self.counters.ring_lost);
        }
        Some(Ok(()))
    }

    /// Whether a path leads from this process's socket to that of a process of this namespace.
    fn may_meet(&self, path: &Path, peer: Peer) -> bool {
        let Some(backlog) = &self.backlog else { return false };
        let (bound, source) = (self.membership.address(), path.flow.source);
        let port = self.medium.port();
        let is_own = bound == source || bound.is_unspecified() && backlog.is_local(source);
        is_own
            && (path.flow.source_port, path.flow.destination_port) == (port, port)
            // An adopted index has no process that could take a ring.
            && (peer.process == self.process || !self.local.contains(peer.process))
            && backlog.is_here(peer)
    }

    #[cold]
    fn invite(&mut self, now_ns: u64, peer: Peer) {
        if self.same_host.invites(now_ns, peer.process)
            && let Some(says) = self.same_host.invite(now_ns, peer.process)
            && !self.say(&says)
        {
            self.same_host.not_invited(now_ns, peer.process);
        }
    }

    /// Says something about a ring. False: it does not arrive.
    fn say(&self, says: &Says) -> bool {
        let registry = self.membership.registry();
        self.relay.send_ring(registry, says.to, says.text(), says.descriptor()) == Sent::Done
    }

    /// Whether there is room for a batch in the ring to a process; `None`: there is no ring.
    #[inline]
    pub(super) fn ring_admits(&mut self, now_ns: u64, peer: Peer) -> Option<bool> {
        match self.same_host.room(now_ns, peer.process)? {
            Room::Yes => Some(true),
            Room::No => Some(false),
            Room::NoLook => {
                let lives =
                    peer.process == self.process || self.membership.registry().is_taken(peer.process);
                if !lives {
                    self.same_host.is_gone(now_ns, peer.process);
                }
                Some(!lives)
            }
        }
    }

    /// Takes a batch from a ring.
    #[inline]
    pub(super) fn receive_by_ring(
        &mut self,
        now_ns: u64,
        handler: &mut dyn FnMut(&Received<'_>),
    ) -> RingLook {
        if self.same_host.has_fresh() {
            if self.receive_by_medium(now_ns, handler) || self.relay_due && self.receive_relayed(now_ns, handler) {
                return RingLook::Batch;
            }
            self.same_host.settle_fresh();
        }
        let SharedPort { same_host, membership, local, looped, medium, looking, counters, .. } = self;
        let port = medium.port();
        let accepts = |received: &Received<'_>| is_for(received, membership, local, looped, port);
        match same_host.receive(accepts, handler) {
            Took::Nothing => RingLook::Nothing,
            Took::Batch { is_accepted } => {
                if !is_accepted {
                    count(&counters.rejected);
                }
                if looking.took_from_ring() {
                    same_host.next_turn();
                    return RingLook::BatchAndSocket;
                }
                RingLook::Batch
            }
            Took::Broken(says) => {
                count(&counters.rejected);
                // A producer that is not told finds out that the ring stays full.
                self.say(&says);
                RingLook::Batch
            }
        }
    }

    /// Hears what another process says about a ring.
    pub(super) fn hear_of_ring(&mut self, now_ns: u64, text: &[u8], descriptor: Option<OwnedFd>) {
        if let Some(says) = self.same_host.hear(now_ns, text, descriptor) {
            // A process that gets no answer asks again.
            self.say(&says);
        }
    }

    /// Forgets the rings of processes that have gone, now and then.
    pub(super) fn sweep_rings(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.looking.swept_ns) < SWEEP_INTERVAL_NS {
            return;
        }
        self.looking.swept_ns = now_ns;
        let registry = self.membership.registry();
        self.same_host.sweep(|process| registry.is_taken(process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_gets_a_look_after_many_batches_after_some_time_and_while_it_is_busy() {
        let mut looking = Looking::default();
        assert!(looking.is_due(1_000_000), "at first");
        looking.looked(1_000_000, false);
        assert!(!looking.is_due(1_000_000 + SOCKET_INTERVAL_NS - 1));
        assert!(looking.is_due(1_000_000 + SOCKET_INTERVAL_NS));
        let looks = (0..2 * RING_BATCHES).filter(|_| looking.took_from_ring()).count();
        assert_eq!(looks, 2);
        looking.looked(2_000_000, true);
        looking.looked(2_000_001, false);
        assert!(looking.is_due(2_000_001), "something came just now");
        looking.looked(2_000_000 + SOCKET_BUSY_NS, false);
        assert!(!looking.is_due(2_000_000 + SOCKET_BUSY_NS));
        looking.woken();
        assert!(looking.is_due(0));
    }
}

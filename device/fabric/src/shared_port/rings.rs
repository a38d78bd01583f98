//! Batches that a shared port sends and receives through rings.

use std::os::fd::OwnedFd;

use pumice_model::port::batch::{GsoBatch, Peer, PortLimits, ReceivedBatch, ShortReceive, TransmitError};
use pumice_platform::outside::world;
use pumice_transport::path::Path;

use super::counters::count;
use super::receiving::is_for_on_path;
use super::requests::is_for_all;
use super::socket_polling::RingPoll;
use super::{LastSeries, SharedPort};
use crate::files::sockets::SendOutcome;
use crate::members::member_index::MemberIndex;
use crate::relay::local::is_only_for;
use crate::same_host::{OutgoingMessage, PutOutcome, RingReceive, RingRoom};
use crate::system::medium::Medium;

/// Time between two checks whether the processes at the other ends of rings live, in nanoseconds.
const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;

impl<M: Medium> SharedPort<M> {
    /// Sends a batch through a ring. Returns `None` if it has to go by UDP.
    #[inline]
    pub(super) fn transmit_by_ring(
        &mut self,
        now_ns: u64,
        batch: &GsoBatch<'_>,
    ) -> Option<Result<(), TransmitError>> {
        let (member, incarnation) = self.find_receiver(batch)?;
        world::handed_over(u64::from(member.number()));
        if let Some((PutOutcome::Done, ring)) =
            self.same_host.put_on_known_path(now_ns, member, incarnation, batch)
        {
            // A batch with an ICRC was made for a medium that needs one.
            self.receiver.last_series.ring = if batch.has_icrc { 0 } else { ring };
            return Some(Ok(()));
        }
        if !self.same_host.knows(member, batch.path) {
            if !self.can_share_ring(batch.path, member) {
                return None;
            }
            if !self.same_host.is_open(member) {
                self.invite(now_ns, member);
                return None;
            }
        }
        if self.same_host.put(now_ns, member, incarnation, batch)? == PutOutcome::Lost {
            count(&self.counting.counters.ring_lost);
        }
        Some(Ok(()))
    }

    /// Returns the member that gets a batch, and its owner's incarnation number. All batches of a series have
    /// one receiver.
    #[inline]
    fn find_receiver(&mut self, batch: &GsoBatch<'_>) -> Option<(MemberIndex, u64)> {
        if batch.series != 0 && batch.series == self.receiver.last_series.number {
            let found = self.last_member();
            debug_assert_eq!(found.map(|(peer, ..)| peer).unwrap_or(batch.peer()), batch.peer());
            if let Some((_, member, incarnation)) = found {
                return Some((member, incarnation));
            }
        }
        let peer = batch.peer();
        if !peer.process.is_of_process() || peer.address.is_multicast() {
            return None;
        }
        let found = self.find_member(peer)?;
        self.receiver.last_series = LastSeries { number: batch.series, ring: 0 };
        Some(found)
    }

    /// Returns the member that `peer` is, and its owner's incarnation number.
    #[inline]
    fn member_of(&self, peer: Peer) -> Option<(MemberIndex, u64)> {
        self.last_member_of(peer).or_else(|| self.search_member(peer))
    }

    /// Returns the same as [`member_of`](Self::member_of), and caches it.
    #[inline]
    fn find_member(&mut self, peer: Peer) -> Option<(MemberIndex, u64)> {
        if let Some(found) = self.last_member_of(peer) {
            return Some(found);
        }
        let (member, incarnation) = self.search_member(peer)?;
        self.receiver.last_receiver = Some((peer, member, incarnation));
        self.receiver.last_series = LastSeries::default();
        Some((member, incarnation))
    }

    /// Returns the cached peer and its member, if no other process has taken its place.
    #[inline]
    fn last_member(&self) -> Option<(Peer, MemberIndex, u64)> {
        let backlog = self.backlog.as_ref()?;
        self.receiver
            .last_receiver
            .filter(|(_, member, incarnation)| backlog.incarnation(*member) == *incarnation)
    }

    /// Returns the cached member as [`last_member`](Self::last_member) does, if it is that of `peer`.
    #[inline]
    fn last_member_of(&self, peer: Peer) -> Option<(MemberIndex, u64)> {
        let (last, member, incarnation) = self.last_member()?;
        (last == peer).then_some((member, incarnation))
    }

    fn search_member(&self, peer: Peer) -> Option<(MemberIndex, u64)> {
        let backlog = self.backlog.as_ref()?;
        let member = backlog.find(peer)?;
        Some((member, backlog.incarnation(member)))
    }

    /// Reports whether another batch of a series goes into the ring that took the previous one, and whether
    /// there is room.
    #[inline]
    pub(super) fn ring_admits_next_of_series(&mut self, series: u64) -> bool {
        let LastSeries { number: last, ring: number } = self.receiver.last_series;
        if series != last || number == 0 {
            return false;
        }
        self.last_member().is_some_and(|(_, member, incarnation)| {
            self.same_host.has_room_again(member, incarnation, number)
        })
    }

    /// Puts a short batch of a series that [`Port::admits_next_of_series`] has just admitted into the ring.
    /// Returns false if it has to be sent in the general way.
    ///
    /// [`Port::admits_next_of_series`]: pumice_model::port::Port::admits_next_of_series
    #[inline]
    pub(super) fn put_next_of_series(&mut self, series: u64, segment_bytes: usize, bytes: &[u8]) -> bool {
        let LastSeries { number: last, ring } = self.receiver.last_series;
        let Some((_, member, _)) = self.receiver.last_receiver else { return false };
        if series != last || ring == 0 || is_for_all(bytes) {
            return false;
        }
        world::handed_over(u64::from(member.number()));
        self.same_host.put_short(member, ring, series, (segment_bytes, bytes))
    }

    /// Takes the next batch from a ring, if it is a short one, and nothing else is due.
    #[inline]
    pub(super) fn receive_short_by_ring(&mut self, now_ns: u64) -> ShortReceive<'_> {
        let SharedPort { same_host, identity, polling, .. } = self;
        let has_others = !identity.looped.is_empty() || polling.relay_is_next || polling.relay_due;
        if has_others || !same_host.has_inbound() || !polling.socket_polling.leaves_next_to_ring() {
            return ShortReceive::NotHere;
        }
        match same_host.receive_short(|received| is_only_for(received, &identity.local)) {
            ShortReceive::Batch(received) => {
                polling.socket_polling.count_ring_batch();
                ShortReceive::Batch(received)
            }
            ShortReceive::Nothing if polling.socket_polling.is_due(now_ns) => ShortReceive::NotHere,
            ShortReceive::Nothing => {
                polling.emptied_ns = Some(now_ns);
                ShortReceive::Nothing
            }
            ShortReceive::NotHere => ShortReceive::NotHere,
        }
    }

    /// Returns the limits of the ring to `peer`, if there is one.
    #[inline]
    pub(super) fn limits_of_ring(&self, peer: Peer) -> Option<PortLimits> {
        self.same_host.limits(self.member_of(peer)?.0)
    }

    /// Reports whether a path to the socket of a process of this namespace begins at this process's socket.
    fn can_share_ring(&self, path: &Path, member: MemberIndex) -> bool {
        let Some(backlog) = &self.backlog else { return false };
        let (bound, source) = (self.membership.address(), path.flow.source);
        let port = self.medium.port();
        let is_own = bound == source || bound.is_unspecified() && backlog.is_local(source);
        is_own
            && path.flow.destination_port == port
            // An adopted index has no process that could accept a ring.
            && (member == self.membership.index() || !self.membership.own_members().contains(&member))
    }

    /// Asks the process of a newly connected peer to accept a ring before the first message: making the
    /// memory of a ring takes as long as hundreds of messages.
    pub(super) fn invite_early(&mut self, now_ns: u64, path: &Path, peer: Peer) {
        if self.same_host.is_on()
            && peer.process.is_of_process()
            && !peer.address.is_multicast()
            && let Some((member, _)) = self.member_of(peer)
            && !self.same_host.is_open(member)
            && self.can_share_ring(path, member)
        {
            self.invite(now_ns, member);
        }
    }

    #[cold]
    fn invite(&mut self, now_ns: u64, member: MemberIndex) {
        if self.same_host.invites(now_ns, member)
            && let Some(message) = self.same_host.invite(now_ns, member)
            && !self.send_ring_message(&message)
        {
            self.same_host.not_invited(now_ns, member);
        }
    }

    /// Sends a message about a ring. Returns false if it does not arrive.
    fn send_ring_message(&self, message: &OutgoingMessage) -> bool {
        let registry = self.membership.registry();
        self.relays.relay.send_ring(registry, message.to, message.text(), message.descriptor())
            == SendOutcome::Done
    }

    /// Reports whether the ring to a process has room for a batch; `None` if there is no ring.
    #[inline]
    pub(super) fn ring_admits(&mut self, now_ns: u64, peer: Peer) -> Option<bool> {
        let Some((member, incarnation)) = self.find_member(peer) else {
            let backlog = self.backlog.as_ref()?;
            if self.same_host.is_on() {
                self.same_host.forget_ended(peer.process, |member| backlog.incarnation(member));
            }
            return None;
        };
        match self.same_host.room(now_ns, member, incarnation)? {
            RingRoom::Yes => Some(true),
            RingRoom::No => Some(false),
            RingRoom::CheckConsumer => {
                let is_own = member == self.membership.index();
                let lives = is_own || self.membership.registry().is_taken(member);
                if !lives {
                    self.same_host.is_gone(now_ns, member);
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
        handler: &mut dyn FnMut(&ReceivedBatch<'_>),
    ) -> RingPoll {
        if self.same_host.has_fresh() {
            if self.receive_by_medium(now_ns, handler)
                || self.polling.relay_due && self.receive_relayed(now_ns, handler)
            {
                return RingPoll::Batch;
            }
            self.same_host.settle_fresh();
        }
        let SharedPort { same_host, membership, identity, medium, polling, counting, .. } = self;
        let port = medium.port();
        let accepts = |received: &ReceivedBatch<'_>, reaches_this_process: &mut bool| {
            is_for_on_path(received, reaches_this_process, membership, identity, port)
        };
        match same_host.receive(accepts, handler) {
            RingReceive::Nothing => RingPoll::Nothing,
            RingReceive::Batch { is_accepted } => {
                if !is_accepted {
                    count(&counting.counters.rejected);
                }
                if polling.socket_polling.count_ring_batch() {
                    same_host.next_turn();
                    return RingPoll::BatchAndSocket;
                }
                RingPoll::Batch
            }
            RingReceive::Broken(message) => {
                count(&counting.counters.rejected);
                // A producer that does not get this message finds out that the ring stays full.
                self.send_ring_message(&message);
                RingPoll::Batch
            }
        }
    }

    /// Handles a message of another process about a ring.
    pub(super) fn handle_ring_message(&mut self, now_ns: u64, text: &[u8], descriptor: Option<OwnedFd>) {
        if let Some(message) = self.same_host.handle_message(now_ns, text, descriptor) {
            // A process that gets no answer asks again.
            self.send_ring_message(&message);
        }
    }

    /// Removes the rings of processes that have gone, now and then.
    pub(super) fn sweep_rings(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.polling.socket_polling.swept_ns) < SWEEP_INTERVAL_NS {
            return;
        }
        self.polling.socket_polling.swept_ns = now_ns;
        let registry = self.membership.registry();
        self.same_host.sweep(now_ns, |member| registry.is_taken(member));
    }
}

//! What a shared port sends and receives through rings.

use std::os::fd::OwnedFd;

use pumice_ports::{GsoBatch, Peer, PortLimits, Received, TransmitError};
use pumice_transport::path::Path;

use super::counters::count;
use super::looking::RingLook;
use super::receiving::is_for_on_way;
use super::{LastSeries, SharedPort};
use crate::medium::Medium;
use crate::member_index::MemberIndex;
use crate::same_host::{Put, Room, Says, Took};
use crate::sockets::Sent;

/// Time between two looks whether the processes at the other ends of rings live.
const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;

impl<M: Medium> SharedPort<M> {
    /// Sends a batch through a ring. `None`: it goes by UDP.
    #[inline]
    pub(super) fn transmit_by_ring(
        &mut self,
        now_ns: u64,
        batch: &GsoBatch<'_>,
    ) -> Option<Result<(), TransmitError>> {
        let (member, incarnation) = self.find_receiver(batch)?;
        if let Some((Put::Done, ring)) = self.same_host.put_on_known_path(member, incarnation, batch) {
            // With an ICRC it was made for a way that needs one.
            self.last_series.ring = if batch.has_icrc { 0 } else { ring };
            return Some(Ok(()));
        }
        if !self.same_host.knows(member, batch.path) {
            if !self.may_meet(batch.path, member) {
                return None;
            }
            if !self.same_host.is_open(member) {
                self.invite(now_ns, member);
                return None;
            }
        }
        if self.same_host.put(now_ns, member, incarnation, batch)? == Put::Lost {
            count(&self.counters.ring_lost);
        }
        Some(Ok(()))
    }

    /// The member that gets a batch, and the number that its owner has. A series of batches has one receiver.
    #[inline]
    fn find_receiver(&mut self, batch: &GsoBatch<'_>) -> Option<(MemberIndex, u64)> {
        if batch.series != 0 && batch.series == self.last_series.number {
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
        self.last_series = LastSeries { number: batch.series, ring: 0 };
        Some(found)
    }

    /// The member that `peer` is, and the number that its owner has.
    #[inline]
    fn member_of(&self, peer: Peer) -> Option<(MemberIndex, u64)> {
        self.last_member_of(peer).or_else(|| self.search_member(peer))
    }

    /// As [`member_of`](Self::member_of), and remembers it as the one that was asked for last.
    #[inline]
    fn find_member(&mut self, peer: Peer) -> Option<(MemberIndex, u64)> {
        if let Some(found) = self.last_member_of(peer) {
            return Some(found);
        }
        let (member, incarnation) = self.search_member(peer)?;
        self.last_found = Some((peer, member, incarnation));
        self.last_series = LastSeries::default();
        Some((member, incarnation))
    }

    /// The peer that was asked for last and its member, if no other process has its place.
    #[inline]
    fn last_member(&self) -> Option<(Peer, MemberIndex, u64)> {
        let backlog = self.backlog.as_ref()?;
        self.last_found.filter(|(_, member, incarnation)| backlog.incarnation(*member) == *incarnation)
    }

    /// As [`last_member`](Self::last_member), if it is that of `peer`.
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

    /// Whether another batch of a series goes into the ring that took the one before, and there is room.
    #[inline]
    pub(super) fn ring_admits_again(&mut self, series: u64) -> bool {
        let LastSeries { number: last, ring: number } = self.last_series;
        if series != last || number == 0 {
            return false;
        }
        self.last_member().is_some_and(|(_, member, incarnation)| {
            self.same_host.has_room_again(member, incarnation, number)
        })
    }

    /// What the ring to `peer` takes, if there is one.
    #[inline]
    pub(super) fn limits_of_ring(&self, peer: Peer) -> Option<PortLimits> {
        self.same_host.limits(self.member_of(peer)?.0)
    }

    /// Whether a path that leads to the socket of a process of this namespace begins at this process's.
    fn may_meet(&self, path: &Path, member: MemberIndex) -> bool {
        let Some(backlog) = &self.backlog else { return false };
        let (bound, source) = (self.membership.address(), path.flow.source);
        let port = self.medium.port();
        let is_own = bound == source || bound.is_unspecified() && backlog.is_local(source);
        is_own
            && path.flow.destination_port == port
            // An adopted index has no process that could take a ring.
            && (member == self.membership.index() || !self.membership.own_members().contains(&member))
    }

    /// A connection to this peer was made: its process is asked to take a ring before the first message. To
    /// make its memory takes as long as hundreds of messages.
    pub(super) fn invite_early(&mut self, now_ns: u64, path: &Path, peer: Peer) {
        if self.same_host.is_on()
            && peer.process.is_of_process()
            && !peer.address.is_multicast()
            && let Some((member, _)) = self.member_of(peer)
            && !self.same_host.is_open(member)
            && self.may_meet(path, member)
        {
            self.invite(now_ns, member);
        }
    }

    #[cold]
    fn invite(&mut self, now_ns: u64, member: MemberIndex) {
        if self.same_host.invites(now_ns, member)
            && let Some(says) = self.same_host.invite(now_ns, member)
            && !self.say(&says)
        {
            self.same_host.not_invited(now_ns, member);
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
        let Some((member, incarnation)) = self.find_member(peer) else {
            let backlog = self.backlog.as_ref()?;
            if self.same_host.is_on() {
                self.same_host.forget_gone(peer.process, |member| backlog.incarnation(member));
            }
            return None;
        };
        match self.same_host.room(now_ns, member, incarnation)? {
            Room::Yes => Some(true),
            Room::No => Some(false),
            Room::NoLook => {
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
        handler: &mut dyn FnMut(&Received<'_>),
    ) -> RingLook {
        if self.same_host.has_fresh() {
            if self.receive_by_medium(now_ns, handler)
                || self.relay_due && self.receive_relayed(now_ns, handler)
            {
                return RingLook::Batch;
            }
            self.same_host.settle_fresh();
        }
        let SharedPort { same_host, membership, local, looped, medium, looking, counters, .. } = self;
        let port = medium.port();
        let accepts = |received: &Received<'_>, leads_here: &mut bool| {
            is_for_on_way(received, leads_here, membership, local, looped, port)
        };
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
        self.same_host.sweep(now_ns, |member| registry.is_taken(member));
    }
}

//! Lanes: the short way of a message from its post to the port, and from the port to its queue pair.
//!
//! A message of one packet, in order, of which no subscriber has to be told and about which no plan decides,
//! needs no turn of the engine. What a lane leaves behind is what a turn would have left: the same packets in
//! the same batch, the same counts, timers and budget. Where anything has to be decided, the lane does
//! nothing, and the engine takes its turn.

use pumice_model::event::Topics;
use pumice_transport::path::Arrival;
use pumice_transport::wire::peek;

use super::batch::BatchSink;
use super::dispatch::PacketReceivers;
use super::drive::Engine;
use super::transmission::Transmission;
use crate::resources::{MappingCheckPolicy, Resources};

impl Resources {
    /// Reports whether packets may take lanes: no subscriber listens to them or to what they access, no plan
    /// decides about them, and no signature, counter or schedule depends on them.
    #[inline]
    pub(crate) fn admits_lanes(&self) -> bool {
        let is_asked = self.decisions.decides_packets() || self.decisions.delays() || self.is_shuffled();
        self.lanes.are_open
            && !is_asked
            && !self.counts_completions()
            && !self.listens_to_any(Topics::PACKETS | Topics::ANSWERS | Topics::ACCESSES)
            && !self.memory().has_signatures()
    }
}

impl Engine {
    /// Sends the request that was just posted to a queue pair, and the acknowledgement that waits there.
    /// Returns false if neither has been sent.
    #[inline]
    pub(crate) fn send_by_lane(&mut self, index: u32, now_ns: u64, checks: MappingCheckPolicy) -> bool {
        if !self.is_at_rest_for(index) || !self.resources.admits_lanes() {
            return false;
        }
        let Engine { resources, queue_pairs, port, .. } = self;
        let Transmission { counters, builder, budget } = &mut self.transmission;
        let Some(entry) = queue_pairs.at_mut(index) else { return false };
        let (Some((path, destination)), Some(peer)) = (entry.qp.lane(), entry.peer) else { return false };
        let most_packets = if self.turns.responders.is_empty() { 1 } else { 2 };
        let mut sink = BatchSink::new(builder, &mut **port, counters, now_ns);
        if budget.room_bytes(peer) == 0 || !sink.leads_to(path, destination, most_packets) {
            return false;
        }
        let mut host = resources.host(checks.of_connections());
        let sent = entry.qp.send_by_lane(now_ns, &mut host, sink.builder.room());
        let Some(batch) = sent else { return false };
        host.listeners.batch_time.continue_at(now_ns);
        let (packets, bytes) = sink.builder.fill(batch);
        let cost_bytes = sink.limits().packet_cost.of(batch.request_bytes);
        budget.change_limits(peer, sink.limits());
        sink.flush();
        resources.lanes.packets.sent += u64::from(packets);
        entry.traffic.sent(packets, bytes);
        entry.sent_one(cost_bytes, budget);
        self.turns.deadlines.register(index, entry.qp.deadline_ns());
        if self.turns.responders.pop().is_some() {
            self.acknowledgements.left_with_request();
        }
        self.acknowledgements.reply.posted(now_ns);
        true
    }

    /// Reports whether the engine has nothing to do, except to send what this queue pair has.
    #[inline]
    fn is_at_rest_for(&self, index: u32) -> bool {
        self.turns.senders.is_empty()
            && !self.transmission.builder.is_open()
            && self.turns.held_until_ns.is_none()
            && (self.turns.responders.is_empty() || self.turns.responders.only() == Some(index))
            && self.is_settled()
            && !self.gsi.wants_to_send()
            && !self.plan_effects.outages.is_stopped()
    }
}

impl PacketReceivers<'_> {
    /// Passes a packet to its queue pair by a lane. Returns the index of the queue pair, or `None` if nothing
    /// has been done that would not be done again.
    #[inline]
    pub(super) fn receive_by_lane(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        bytes: &[u8],
    ) -> Option<u32> {
        let (index, entry) = self.entries.queue_pairs.by_number(peek::destination(bytes)?)?;
        if entry.sharing.is_shared() || entry.takes_at != 0 {
            return None;
        }
        let mut host = self.resources.host(self.checks.of_connections());
        if !entry.qp.receive_by_lane(now_ns, arrival, bytes, &mut host) {
            return None;
        }
        entry.traffic.received(bytes.len());
        self.resources.lanes.packets.received += 1;
        Some(index)
    }
}

//! Lanes: the short way of a message from its post to the port, and from the port to its queue pair.
//!
//! A message of one packet, in order, of which no subscriber has to be told and about which no plan decides,
//! needs no turn of the engine. What a lane leaves behind is what a turn would have left: the same packets in
//! the same batch, the same counts, timers and budget. Where anything has to be decided, the lane does
//! nothing, and the engine takes its turn.

use pumice_model::event::Topics;
use pumice_model::port::Port;
use pumice_model::port::batch::{ReceivedBatch, ShortReceive};
use pumice_platform::outside::world;
use pumice_transport::host::Counter;
use pumice_transport::path::Arrival;
use pumice_transport::qp::{LaneBatch, LaneSend, QueuePair, may_arrive_by_lane};
use pumice_transport::types::WorkCompletion;
use pumice_transport::wire::{Qpn, peek};

use super::acknowledgements::Acknowledge;
use super::batch::{BatchSink, Transmission};
use super::dispatch::PacketReceivers;
use super::drive::Engine;
use super::queue_pairs::Entries;
use super::turns::Turns;
use crate::objects::completion_queue::CompletionQueue;
use crate::resources::{DeviceHost, MappingCheckPolicy, Resources};

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
        let send = |qp: &mut QueuePair, now_ns, host: &mut DeviceHost<'_>, room: &mut [u8]| {
            qp.send_by_lane(now_ns, host, room)
        };
        self.resources.admits_lanes() && self.leave_by_lane(index, checks, || now_ns, send).is_some()
    }

    /// Posts a request that leaves at once, and sends it and the acknowledgement that waits there. Returns
    /// the time at which it left, or `None` if nothing has happened. `now` reads the clock.
    #[inline]
    pub(crate) fn post_by_lane(
        &mut self,
        qpn: Qpn,
        send: &LaneSend<'_>,
        checks: MappingCheckPolicy,
        now: impl FnOnce() -> u64,
    ) -> Option<u64> {
        if !self.resources.admits_lanes() {
            return None;
        }
        let (index, entry) = self.queue_pairs.by_number(qpn)?;
        let polled = self.resources.completions.cq_common.freed_send_slots.count(qpn.value());
        // Executed requests keep their entry until they are polled.
        if entry.posted_sends.wrapping_sub(polled) >= entry.qp.capacity().max_send_wr {
            return None;
        }
        let post = |qp: &mut QueuePair, now_ns, host: &mut DeviceHost<'_>, room: &mut [u8]| {
            qp.post_by_lane(now_ns, send, host, room)
        };
        let now_ns = self.leave_by_lane(index, checks, now, post)?;
        if let Some(entry) = self.queue_pairs.at_mut(index) {
            entry.posted_sends = entry.posted_sends.wrapping_add(1);
        }
        Some(now_ns)
    }

    /// Sends the batch that `write` writes for a queue pair. Returns the time, or `None` if there is none and
    /// nothing has happened.
    #[inline(always)]
    fn leave_by_lane(
        &mut self,
        index: u32,
        checks: MappingCheckPolicy,
        now: impl FnOnce() -> u64,
        write: impl FnOnce(&mut QueuePair, u64, &mut DeviceHost<'_>, &mut [u8]) -> Option<LaneBatch>,
    ) -> Option<u64> {
        if !self.is_at_rest_for(index) {
            return None;
        }
        let Engine { resources, queue_pairs, port, .. } = self;
        let Transmission { counters, builder, budget } = &mut self.transmission;
        let entry = queue_pairs.at_mut(index)?;
        let ((path, destination), peer) = (entry.qp.lane()?, entry.peer?);
        let most_packets = if self.turns.responders.is_empty() { 1 } else { 2 };
        if budget.room_bytes(peer) == 0 {
            return None;
        }
        let now_ns = now();
        let mut sink = BatchSink::new(builder, &mut **port, counters, now_ns);
        if !sink.leads_to(path, destination, most_packets) {
            return None;
        }
        let mut host = resources.host(checks.of_connections());
        let batch = write(&mut entry.qp, now_ns, &mut host, sink.builder.room())?;
        host.listeners.batch_time.continue_at(now_ns);
        let (packets, bytes) = sink.builder.fill(batch);
        let cost_bytes = sink.limits().packet_cost.of(batch.request_bytes);
        budget.change_limits(peer, sink.limits());
        sink.flush_lane();
        resources.lanes.packets.sent += u64::from(packets);
        entry.traffic.sent(packets, bytes);
        entry.sent_one(cost_bytes, budget);
        self.turns.deadlines.register(index, entry.qp.deadline_ns());
        if self.turns.responders.pop().is_some() {
            self.acknowledgements.left_with_request();
        }
        self.acknowledgements.reply.posted(now_ns);
        Some(now_ns)
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

/// Largest number of batches that a poll takes before the application gets the completions.
const MOST_BATCHES: usize = 16;

/// What a look for packets of lanes has left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LanePoll {
    /// Nothing: the step is done. The value says whether packets came.
    Done(bool),
    /// What follows the receiving. The value says whether packets came.
    Looked(bool),
    /// Packets came, which made no completion: the port may have more.
    MayHaveMore,
    /// Everything: nothing has been taken.
    NotHere,
}

impl Engine {
    /// Takes a short batch from the port, and does what has to follow, if that is little. The effect is that
    /// of [`Engine::receive`], and of as much of the rest of a step as the result says.
    #[inline]
    pub(crate) fn poll_by_lane(&mut self, now_ns: u64, checks: MappingCheckPolicy) -> LanePoll {
        let is_plain = self.resources.admits_lanes()
            && self.reception.arrivals.is_none()
            && self.resources.ethernet.is_none()
            && !self.plan_effects.outages.is_stopped()
            && !self.gsi.has_mads()
            && !self.gsi.has_new_request();
        if !is_plain {
            return LanePoll::NotHere;
        }
        let Engine { resources, queue_pairs, mrc, port, targets, gsi: management, .. } = self;
        let Engine { transmission: Transmission { budget, .. }, turns: Turns { touched, .. }, .. } = self;
        let entries = Entries { queue_pairs, budget };
        let mut receivers = PacketReceivers { entries, mrc, resources, targets, touched, management, checks };
        let most_batches = std::mem::replace(&mut self.reception.most_batches, 1);
        match port.receive_short(now_ns) {
            ShortReceive::Batch(received) => {
                receivers.resources.completions.new_completions = false;
                let last = receivers.receive_short(now_ns, &received);
                if let Some(last) = last.filter(|_| most_batches > 1) {
                    let more = receivers.receive_more(now_ns, &mut **port, last, most_batches - 1);
                    self.acknowledgements.took_more(more);
                }
            }
            ShortReceive::Nothing => return self.lanes_are_empty(now_ns),
            ShortReceive::NotHere => return LanePoll::NotHere,
        }
        self.targets.flush(&mut **port);
        self.reception.was_empty = false;
        if self.resources.rendezvous.is_due {
            self.queue_pairs.post_device_requests(&mut self.resources, &mut self.turns.touched);
        }
        self.settle();
        if !self.turns.responders.is_empty() {
            self.acknowledgements.reply.arrived(now_ns);
        }
        if self.gsi.has_mads() || !self.resources.completions.new_completions {
            return LanePoll::MayHaveMore;
        }
        if self.is_due(now_ns) || !self.turns.senders.is_empty() || self.transmission.builder.is_stalled() {
            return LanePoll::Looked(true);
        }
        // The application processes its completions first.
        self.transmit_responses(now_ns, Acknowledge::AfterCompletions, checks);
        self.settle();
        LanePoll::Done(true)
    }

    /// Ends a poll of a completion queue, and stores the completion in `first` that the polling thread gets
    /// past it. Returns false if there is none.
    #[inline]
    pub(crate) fn end_direct_delivery(&mut self, cq: &CompletionQueue, first: &mut WorkCompletion) -> bool {
        let Some(released) = self.resources.completions.direct.end(first) else { return false };
        cq.passed_over(first.qp_num, released);
        true
    }

    /// Notes that the thread that drives now takes so many completions at once. In a world each message has a
    /// time of its own.
    #[inline]
    pub(crate) fn expect_polls(&mut self, wanted: usize) {
        self.reception.most_batches = if world::is_in_world() { 1 } else { wanted.min(MOST_BATCHES) };
    }

    /// Notes that the port has nothing.
    #[inline]
    fn lanes_are_empty(&mut self, now_ns: u64) -> LanePoll {
        self.resources.completions.new_completions = false;
        self.reception.was_empty = true;
        self.reception.drained_ns = now_ns;
        if self.is_due(now_ns) || self.has_backlog() {
            LanePoll::Looked(false)
        } else {
            LanePoll::Done(false)
        }
    }
}

impl PacketReceivers<'_> {
    /// Passes the one or two packets of a short batch without ICRC to their queue pairs, as
    /// [`PacketReceivers::receive`] does. Lanes are open. Returns the index of the queue pair of the last
    /// one, if all took lanes.
    #[inline]
    fn receive_short(&mut self, now_ns: u64, received: &ReceivedBatch<'_>) -> Option<u32> {
        let ReceivedBatch { flow, traffic_class, hop_limit, bytes, .. } = received;
        let arrival = Arrival { flow, traffic_class: *traffic_class, hop_limit: *hop_limit };
        self.resources.listeners.batch_time.end();
        let (mut left, mut packets, mut last) = (*bytes, 0, None);
        while packets < 2 && may_arrive_by_lane(left) {
            let (packet, rest) = left.split_at(left.len().min(received.segment_bytes));
            let Some(index) = self.receive_by_lane(now_ns, &arrival, packet) else { break };
            self.touched.push(index);
            (left, packets, last) = (rest, packets + 1, Some(index));
        }
        if left.is_empty() {
            self.resources.count(Counter::RxBatches, 1);
        } else {
            last = None;
            self.receive_rest(now_ns, &ReceivedBatch { bytes: left, ..*received }, packets);
        }
        self.resources.count(Counter::RxPackets, packets as u64);
        self.resources.count(Counter::RxBytes, (bytes.len() - left.len()) as u64);
        last
    }

    /// Takes up to `most_batches` further short batches, before the application has had the completions of
    /// those before. A batch that is taken too early would find no receive request, so that the queue pair
    /// of the one before (`last`) must have one left. Returns how many were taken.
    #[inline(never)]
    fn receive_more(&mut self, now_ns: u64, port: &mut dyn Port, last: u32, most_batches: usize) -> u32 {
        let (mut last, mut taken) = (Some(last), 0);
        while let Some(index) = last.filter(|_| taken < most_batches as u32) {
            let entry = self.entries.queue_pairs.at_mut(index);
            if entry.is_none_or(|entry| !self.resources.has_receives(entry.qp.context())) {
                break;
            }
            let ShortReceive::Batch(received) = port.receive_short(now_ns) else { break };
            last = self.receive_short(now_ns, &received);
            taken += 1;
        }
        taken
    }

    #[cold]
    #[inline(never)]
    fn receive_rest(&mut self, now_ns: u64, left: &ReceivedBatch<'_>, first: usize) {
        self.receive_from(now_ns, left, first);
    }

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

//! Packets that come to a device by its link: the queue is that of the switch at the other end, which drops
//! what does not fit, and marks.

use std::collections::VecDeque;

use pumice_transport::host::Counter;
use pumice_transport::path::Flow;

use super::held::HeldBatch;
use super::tally::{DropTally, MAX_HELD_BYTES};
use super::wire::wire_bytes;
use pumice_model::network::{LinkDirection, LinkQueue};
use pumice_model::performance::ArrivalTimes;
use pumice_model::port::batch::ReceivedBatch;

/// Congestion experienced: both ECN bits.
const ECN_CE: u8 = 0b11;

/// The common properties of packets that arrive together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
}

#[derive(Debug, Default)]
pub(super) struct IngressQueue {
    queue: LinkQueue,
    held: VecDeque<HeldBatch<Arrival>>,
    held_bytes: usize,
    /// Arrivals by a performance model, behind those of the link.
    pub(super) costs: Option<Box<ArrivalTimes>>,
}

impl IngressQueue {
    /// Reports whether packets pass as if there were no link.
    pub(super) fn passes(&self, direction: &LinkDirection) -> bool {
        direction.is_none() && self.costs.is_none() && self.held.is_empty()
    }

    /// Takes packets that came to the other end of the link. A packet that finds the queue full is lost.
    pub(super) fn accept(
        &mut self,
        direction: &LinkDirection,
        now_ns: u64,
        received: &ReceivedBatch<'_>,
        tally: &DropTally,
    ) {
        let is_ipv4 = received.flow.source.is_ipv4();
        let is_capable = matches!(received.traffic_class & ECN_CE, 0b01 | 0b10);
        let (mut queued, mut dropped, mut marked) = (0, 0, 0);
        let mut open: Option<HeldBatch<Arrival>> = None;
        for (index, packet) in received.segments().enumerate() {
            let on_wire = wire_bytes(is_ipv4, packet.len()) as u64;
            let has_room = self.held_bytes + open.as_ref().map_or(0, HeldBatch::len_bytes) < MAX_HELD_BYTES;
            let passage = match self.queue.send(direction, now_ns, on_wire, is_capable) {
                Ok(passage) if has_room => passage,
                _ => {
                    dropped += 1;
                    self.close(&mut open);
                    continue;
                }
            };
            queued += u64::from(passage.backlog_bytes > 0);
            marked += u64::from(passage.is_marked);
            let mark = if passage.is_marked { ECN_CE } else { 0 };
            let traffic_class = received.traffic_class | mark;
            if open.as_ref().is_some_and(|held| held.common.traffic_class != traffic_class) {
                self.close(&mut open);
            }
            let (flow, hop_limit) = (received.flow, received.hop_limit);
            let begun = || {
                let common = Arrival { flow, traffic_class, hop_limit };
                HeldBatch::new(common, received.segment_bytes, received.has_icrc, index)
            };
            let at_ns = match &mut self.costs {
                Some(costs) => costs.arrives_at_ns(passage.arrives_at_ns, packet),
                None => passage.arrives_at_ns,
            };
            open.get_or_insert_with(begun).push(packet, at_ns);
        }
        self.close(&mut open);
        tally.add(Counter::LinkQueued, queued);
        tally.add(Counter::LinkDropped, dropped);
        tally.add(Counter::LinkMarked, marked);
    }

    fn close(&mut self, open: &mut Option<HeldBatch<Arrival>>) {
        if let Some(held) = open.take() {
            self.held_bytes += held.len_bytes();
            self.held.push_back(held);
        }
    }

    /// Passes the packets that have arrived first to the handler. Returns false if none has.
    pub(super) fn deliver(
        &mut self,
        now_ns: u64,
        grain_ns: u64,
        handler: &mut dyn FnMut(&ReceivedBatch<'_>),
    ) -> bool {
        let Some(first) = self.held.front_mut() else { return false };
        let packets = first.due(now_ns, grain_ns);
        if packets == 0 {
            return false;
        }
        let Arrival { flow, traffic_class, hop_limit } = first.common;
        let (segment_bytes, has_icrc) = (first.segment_bytes, first.has_icrc);
        let bytes = first.next(packets, &flow, false);
        if !bytes.is_empty() {
            handler(&ReceivedBatch { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc });
        }
        first.go_on();
        if self.held.front().is_some_and(HeldBatch::is_over)
            && let Some(over) = self.held.pop_front()
        {
            self.held_bytes -= over.len_bytes();
        }
        true
    }

    /// Returns when the next packets have arrived.
    pub(super) fn next_ns(&self, grain_ns: u64) -> Option<u64> {
        self.held.front().map(|first| first.due_ns(grain_ns))
    }
}

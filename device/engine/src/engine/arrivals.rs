//! The order in which requests come to queue pairs: recorded during a recorded run, imposed during a replay.
//! A device without a record or a replay has nothing of this.

use std::collections::VecDeque;

use pumice_model::port::batch::ReceivedBatch;
use pumice_platform::order::{RequestReceiver, RunOrder};
use pumice_transport::path::Flow;
use pumice_transport::wire::{Packet, Position, Qpn};

use super::dispatch::PacketReceivers;

/// Most packets that are held back at a time.
const MAX_HELD: usize = 4096;
/// Most bytes of packets that are held back.
const MAX_BYTES: usize = 16 << 20;
/// Interval in which held packets are checked, in ns.
const CHECK_INTERVAL_NS: u64 = 50_000;

/// The packets that have arrived and wait for their turn.
pub(crate) struct Arrivals {
    order: &'static RunOrder,
    waiting: VecDeque<ArrivedPacket>,
    bytes: usize,
    next_check_ns: Option<u64>,
}

/// A packet that has arrived.
struct ArrivedPacket {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    has_icrc: bool,
    /// The position of the packet in its batch, on which its ICRC depends.
    position: usize,
    bytes: Vec<u8>,
}

impl Arrivals {
    pub(crate) fn new(order: &'static RunOrder) -> Arrivals {
        Arrivals { order, waiting: VecDeque::new(), bytes: 0, next_check_ns: None }
    }

    /// Returns when to check the held packets again, in ns.
    pub(crate) const fn deadline_ns(&self) -> Option<u64> {
        self.next_check_ns
    }

    /// Takes the packets of a batch that has arrived.
    pub(crate) fn take(&mut self, received: &ReceivedBatch<'_>) {
        let ReceivedBatch { flow, traffic_class, hop_limit, has_icrc, .. } = *received;
        for (position, bytes) in received.segments().enumerate() {
            self.bytes += bytes.len();
            let bytes = bytes.to_vec();
            self.waiting.push_back(ArrivedPacket {
                flow,
                traffic_class,
                hop_limit,
                has_icrc,
                position,
                bytes,
            });
        }
        if self.waiting.len() > MAX_HELD || self.bytes > MAX_BYTES {
            self.order.abandon_replay();
        }
    }

    /// Passes on the packets whose turn it is. Returns whether there were any.
    pub(crate) fn release(&mut self, now_ns: u64, receivers: &mut PacketReceivers<'_>) -> bool {
        let mut kept = VecDeque::new();
        let mut blocked: Vec<Qpn> = Vec::new();
        let mut any = false;
        while let Some(one) = self.waiting.pop_front() {
            let request = Packet::parse(&one.bytes).ok().filter(|packet| packet.info().is_request);
            let destination = request.as_ref().map(|packet| packet.bth().destination);
            // Answers pass: the thread that waits for one may be what the request waits for.
            if destination.is_some_and(|qpn| blocked.contains(&qpn)) {
                kept.push_back(one);
                continue;
            }
            let stream = request.and_then(|packet| point(&one.flow, &packet, receivers));
            if let Some((_, stream)) = stream
                && !self.order.may_arrive(stream)
            {
                blocked.extend(destination);
                kept.push_back(one);
                continue;
            }
            self.bytes -= one.bytes.len();
            any = true;
            let ArrivedPacket { flow, traffic_class, hop_limit, has_icrc, position, ref bytes } = one;
            let segment_bytes = bytes.len().max(1);
            let received = ReceivedBatch { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc };
            receivers.receive_from(now_ns, &received, position);
            if let Some((qpn, stream)) = stream
                && !request_is_expected(&one.bytes, qpn, receivers)
            {
                self.order.arrived(stream);
            }
        }
        self.waiting = kept;
        self.next_check_ns = (!self.waiting.is_empty()).then(|| now_ns.saturating_add(CHECK_INTERVAL_NS));
        any
    }
}

/// Returns the point of the order that a packet is, if it is the last one of a request and its queue pair
/// waits for it.
fn point(
    flow: &Flow,
    packet: &Packet<'_>,
    receivers: &mut PacketReceivers<'_>,
) -> Option<(Qpn, RequestReceiver)> {
    let qpn = packet.bth().destination;
    let ends = matches!(packet.info().position, Position::Last | Position::Only);
    let expects = ends && receivers.expects(qpn, packet);
    expects.then(|| (qpn, RequestReceiver { address: flow.destination, qpn: qpn.value() }))
}

/// Reports whether a queue pair still waits for a packet that came to it: it had no receive request.
fn request_is_expected(bytes: &[u8], qpn: Qpn, receivers: &mut PacketReceivers<'_>) -> bool {
    Packet::parse(bytes).is_ok_and(|packet| receivers.expects(qpn, &packet))
}

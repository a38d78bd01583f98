//! The order in which requests come to queue pairs: noted while a run is recorded, imposed while it is
//! replayed. A device without a record or a replay has nothing of this.

use std::collections::VecDeque;

use pumice_ground::order::{Order, Stream};
use pumice_ports::Received;
use pumice_transport::path::Flow;
use pumice_transport::wire::{Packet, Position, Qpn};

use super::dispatch::Receivers;

/// Packets that are held back at a time.
const MOST_HELD: usize = 4096;
/// Bytes of these.
const MOST_BYTES: usize = 16 << 20;
/// How often it is looked whether it is a packet's turn.
const LOOK_NS: u64 = 50_000;

/// Packets that have come, until they may go on.
pub(crate) struct Arrivals {
    order: &'static Order,
    waiting: VecDeque<ArrivedPacket>,
    bytes: usize,
    look_ns: Option<u64>,
}

/// A packet.
struct ArrivedPacket {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    has_icrc: bool,
    /// In the batch with which it came, which its ICRC is made for.
    position: usize,
    bytes: Vec<u8>,
}

impl Arrivals {
    pub(crate) fn new(order: &'static Order) -> Arrivals {
        Arrivals { order, waiting: VecDeque::new(), bytes: 0, look_ns: None }
    }

    /// When it is to be looked again whether it is a packet's turn.
    pub(crate) const fn deadline_ns(&self) -> Option<u64> {
        self.look_ns
    }

    /// A batch has come.
    pub(crate) fn take(&mut self, received: &Received<'_>) {
        let Received { flow, traffic_class, hop_limit, has_icrc, .. } = *received;
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
        if self.waiting.len() > MOST_HELD || self.bytes > MOST_BYTES {
            self.order.is_too_much();
        }
    }

    /// Hands on what may go on. True if there was something.
    pub(crate) fn release(&mut self, now_ns: u64, receivers: &mut Receivers<'_>) -> bool {
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
            let received = Received { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc };
            receivers.receive_from(now_ns, &received, position);
            if let Some((qpn, stream)) = stream
                && !request_is_expected(&one.bytes, qpn, receivers)
            {
                self.order.arrived(stream);
            }
        }
        self.waiting = kept;
        self.look_ns = (!self.waiting.is_empty()).then(|| now_ns.saturating_add(LOOK_NS));
        any
    }
}

/// The point that a packet is, if it is the last one of a request and its queue pair waits for it.
fn point(flow: &Flow, packet: &Packet<'_>, receivers: &mut Receivers<'_>) -> Option<(Qpn, Stream)> {
    let qpn = packet.bth().destination;
    let ends = matches!(packet.info().position, Position::Last | Position::Only);
    let expects = ends && receivers.expects(qpn, packet);
    expects.then(|| (qpn, Stream { address: flow.destination, qpn: qpn.value() }))
}

/// Whether a queue pair still waits for a packet that came to it: it had no receive request.
fn request_is_expected(bytes: &[u8], qpn: Qpn, receivers: &mut Receivers<'_>) -> bool {
    Packet::parse(bytes).is_ok_and(|packet| receivers.expects(qpn, &packet))
}

//! Measures a quantity in traces, and finds when the other end had each message.
//!
//! Finds when the other end had each message: by the arrival of its packets, and by the receive request that
//! took it.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ptr;

use pumice_transport::mrc::wire::{MrcHeaders, MrcOpcode};
use pumice_transport::types::SendOpcode;
use pumice_transport::wire::Opcode;

use super::grammar::RequirementScope;
use super::quantity::{MeasuredOperation, Quantity, Statistic};
use crate::timeline::{
    CongestionKind, Message, PacketIndex, SetbackKind, Timeline, TimelineProcess, TracedPacket,
    TracedQueuePair,
};

/// The times at which messages were delivered, of those that both ends have recorded.
pub(super) struct Deliveries {
    /// Time of the delivery in ns, by the address of the message in its timeline.
    delivered_ns: HashMap<*const Message, u64>,
}

/// The arrival of the last packet of a message.
struct LastArrival<'a> {
    message: &'a Message,
    at_ns: u64,
    process: usize,
    queue_pair: usize,
}

impl Deliveries {
    /// Finds the deliveries of a timeline.
    pub(super) fn of(timeline: &Timeline) -> Deliveries {
        let mut delivered_ns = HashMap::new();
        let mut taken: HashMap<(usize, usize), Vec<LastArrival<'_>>> = HashMap::new();
        for last in last_arrivals(timeline) {
            if takes_receive(last.message) {
                taken.entry((last.process, last.queue_pair)).or_default().push(last);
            } else {
                delivered_ns.insert(ptr::from_ref(last.message), last.at_ns);
            }
        }
        for ((process, queue_pair), mut arrivals) in taken {
            let Some(qp) = queue_pair_at(timeline, process, queue_pair) else { continue };
            arrivals.sort_by_key(|last| last.at_ns);
            // Messages take receive requests in the order in which they arrive.
            let mut next = 0;
            for last in arrivals {
                next = qp.receives.partition_point(|one| one.end.at_ns < last.at_ns).max(next);
                let Some(receive) = qp.receives.get(next) else { break };
                next += 1;
                let at_ns = receive.polled_ns.unwrap_or(receive.end.at_ns);
                delivered_ns.insert(ptr::from_ref(last.message), at_ns);
            }
        }
        let messages = timeline.processes.iter().flat_map(|one| &one.queue_pairs).flat_map(|qp| &qp.messages);
        for message in messages.filter(|message| returns_data(message)) {
            delivered_ns.insert(ptr::from_ref(message), message.last_ns());
        }
        Deliveries { delivered_ns }
    }

    /// Returns how long a message of the timeline took until it was delivered; `None` if that is not known.
    pub(super) fn took_ns(&self, message: &Message) -> Option<u64> {
        let delivered_ns = self.delivered_ns.get(&ptr::from_ref(message))?;
        Some(delivered_ns.saturating_sub(message.posted_ns))
    }
}

fn opcode(message: &Message) -> Option<SendOpcode> {
    SendOpcode::from_number(u32::from(message.opcode))
}

fn returns_data(message: &Message) -> bool {
    opcode(message).is_some_and(|opcode| opcode.info().needs_response())
}

fn takes_receive(message: &Message) -> bool {
    use SendOpcode::{RdmaWriteWithImm, Send, SendWithImm, SendWithInvalidate};
    matches!(opcode(message), Some(RdmaWriteWithImm | Send | SendWithImm | SendWithInvalidate))
}

fn queue_pair_at(timeline: &Timeline, process: usize, queue_pair: usize) -> Option<&TracedQueuePair> {
    timeline.processes.get(process)?.queue_pairs.get(queue_pair)
}

fn packet_at(timeline: &Timeline, index: PacketIndex) -> Option<&TracedPacket> {
    queue_pair_at(timeline, index.process, index.queue_pair)?.packets.get(index.packet)
}

/// Finds where the last packet of each message arrived that was not dropped there.
fn last_arrivals(timeline: &Timeline) -> Vec<LastArrival<'_>> {
    /// A packet of a requester: when it was sent, when and where it arrived.
    type Passage = (u64, u64, PacketIndex);
    let mut passages: HashMap<(usize, usize, u64), Vec<Passage>> = HashMap::new();
    for arrow in &timeline.arrows {
        let Some((sent, arrived)) = packet_at(timeline, arrow.from).zip(packet_at(timeline, arrow.to)) else {
            continue;
        };
        if sent.side == 0 && !arrived.is_dropped {
            let key = (arrow.from.process, arrow.from.queue_pair, sent.message);
            passages.entry(key).or_default().push((sent.at_ns, arrived.at_ns, arrow.to));
        }
    }
    let mut found = Vec::new();
    for (process, one) in timeline.processes.iter().enumerate() {
        for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
            for message in &qp.messages {
                // Another connection of the queue pair may have had a message of this number.
                let life_ns = message.posted_ns..=message.last_ns();
                let own = passages.get(&(process, queue_pair, message.number)).into_iter().flatten();
                let own = own.filter(|(sent_ns, ..)| life_ns.contains(sent_ns));
                if let Some((_, at_ns, to)) = own.max_by_key(|(_, at_ns, _)| *at_ns) {
                    let (process, queue_pair) = (to.process, to.queue_pair);
                    found.push(LastArrival { message, at_ns: *at_ns, process, queue_pair });
                }
            }
        }
    }
    found
}

/// Length of the ICRC, which follows the payload of a packet, in bytes.
const ICRC_BYTES: u32 = 4;
/// Status of a request that was not executed because one before it failed.
const FLUSHED: u8 = 5;

/// Returns the value of a quantity in the base unit of its kind, or `None` if there is nothing to measure.
pub(super) fn of(timeline: &Timeline, quantity: Quantity, scope: &RequirementScope) -> Option<f64> {
    let part = MeasuredPart { timeline, scope };
    let count = |value: usize| Some(value as f64);
    let sum = |of: &dyn Fn(&TracedQueuePair) -> usize| count(part.queue_pairs().map(of).sum());
    match quantity {
        Quantity::RdmaBytes => Some((part.bytes(true) + part.bytes(false)) as f64),
        Quantity::RdmaSent => Some(part.bytes(true) as f64),
        Quantity::RdmaReceived => Some(part.bytes(false) as f64),
        Quantity::RdmaPackets => count(part.packets().count()),
        Quantity::RdmaRate => part.rate(),
        Quantity::Messages => sum(&|qp| {
            let sent = qp.messages.iter().filter(|one| status(one) == Some(0)).count();
            sent + qp.receives.iter().filter(|one| one.end.status == 0).count()
        }),
        Quantity::Failures => sum(&|qp| ended(qp, |status| status != 0 && status != FLUSHED)),
        Quantity::Flushed => sum(&|qp| ended(qp, |status| status == FLUSHED)),
        Quantity::Unfinished => count(part.unfinished()),
        Quantity::Retransmissions => {
            count(part.packets().filter(|(_, packet)| packet.is_sent && packet.transmission > 1).count())
        }
        Quantity::Timeouts => sum(&|qp| {
            let setbacks = qp.messages.iter().flat_map(|one| &one.setbacks);
            setbacks.filter(|one| one.is_own && matches!(one.kind, SetbackKind::TimedOut { .. })).count()
        }),
        Quantity::Rnr => sum(&|qp| qp.rnr_naks_ns.len()),
        Quantity::Drops => {
            count(part.packets().filter(|(_, packet)| packet.is_lost || packet.is_dropped).count())
        }
        Quantity::Duplicates => sum(&|qp| qp.duplicates.len()),
        Quantity::Congestion => sum(&|qp| {
            let heard = qp.congestion.iter();
            heard.filter(|one| !matches!(one.kind, CongestionKind::Rate(_))).count()
        }),
        Quantity::Refusals => count(part.processes().map(|one| one.evidence.refusals.len()).sum()),
        Quantity::Faults => count(part.processes().map(|one| one.evidence.faults.len()).sum()),
        Quantity::Stalls => count(part.processes().map(|one| one.evidence.stalls_ns.len()).sum()),
        Quantity::QueuePairs => count(part.queue_pairs().filter(|qp| !qp.packets.is_empty()).count()),
        Quantity::Peers => {
            let paths = part.packets().filter_map(|(qp, packet)| other_end(qp, packet));
            count(paths.collect::<HashSet<IpAddr>>().len())
        }
        Quantity::Processes => count(part.processes().count()),
        Quantity::Duration => {
            let spans = part.processes().map(|one| one.span_ns).filter(|(from, to)| from <= to);
            let (from_ns, to_ns) = spans.reduce(|one, next| (one.0.min(next.0), one.1.max(next.1)))?;
            Some(to_ns.saturating_sub(from_ns) as f64)
        }
        Quantity::Latency(statistic, operation) => {
            let took_ns = |one: &Message| Some(one.last_ns().saturating_sub(one.posted_ns));
            part.latency(statistic, operation, took_ns)
        }
        Quantity::Delivery(statistic, operation) => {
            let deliveries = Deliveries::of(timeline);
            part.latency(statistic, operation, |one| deliveries.took_ns(one))
        }
    }
}

/// The part of a timeline that is measured.
struct MeasuredPart<'a> {
    timeline: &'a Timeline,
    scope: &'a RequirementScope,
}

impl<'a> MeasuredPart<'a> {
    fn processes(&self) -> impl Iterator<Item = &'a TimelineProcess> {
        let device = self.scope.device.as_deref();
        let is_meant = move |name: &str| device.is_none_or(|device| device == name);
        self.timeline.processes.iter().filter(move |one| is_meant(&one.header.device))
    }

    /// Returns the queue pairs that are connected to the peer, or that exchange packets with it.
    fn queue_pairs(&self) -> impl Iterator<Item = &'a TracedQueuePair> {
        self.queue_pairs_of(self.processes())
    }

    /// Counts the requests that had not ended when their trace did. Traces that were recorded only for a
    /// while do not count, because their processes went on.
    fn unfinished(&self) -> usize {
        let whole = self.queue_pairs_of(self.processes().filter(|one| one.began_ns.is_none()));
        whole.map(|qp| qp.messages.iter().filter(|one| one.end.is_none()).count()).sum()
    }

    fn queue_pairs_of(
        &self,
        processes: impl Iterator<Item = &'a TimelineProcess>,
    ) -> impl Iterator<Item = &'a TracedQueuePair> {
        let peer = self.scope.peer;
        let is_meant = move |qp: &TracedQueuePair| {
            peer.is_none_or(|peer| {
                let talks = qp.paths.iter().any(|(from, to)| *from == peer || *to == peer);
                talks || qp.peer.is_some_and(|(address, _)| address == peer)
            })
        };
        processes.flat_map(|one| &one.queue_pairs).filter(move |qp| is_meant(qp))
    }

    fn packets(&self) -> impl Iterator<Item = (&'a TracedQueuePair, &'a TracedPacket)> {
        let peer = self.scope.peer;
        let all = self.queue_pairs().flat_map(|qp| qp.packets.iter().map(move |packet| (qp, packet)));
        all.filter(move |(qp, packet)| peer.is_none_or(|peer| other_end(qp, packet) == Some(peer)))
    }

    /// Sums the payload bytes that were sent for the first time, or that arrived.
    fn bytes(&self, is_sent: bool) -> u64 {
        let counts = |packet: &TracedPacket| {
            let is_first = packet.is_sent && packet.transmission <= 1;
            packet.is_sent == is_sent && (is_first || !packet.is_sent) && !packet.is_dropped
        };
        let packets = self.packets().filter(|(_, packet)| counts(packet));
        packets.map(|(_, packet)| payload_bytes(packet)).sum()
    }

    fn rate(&self) -> Option<f64> {
        let times = self.packets().map(|(_, packet)| packet.at_ns);
        let (first_ns, last_ns) =
            times.fold((u64::MAX, 0), |(first, last), at_ns| (first.min(at_ns), last.max(at_ns)));
        let ns = last_ns.checked_sub(first_ns).filter(|ns| *ns > 0)?;
        let bits = (self.bytes(true) + self.bytes(false)) as f64 * 8.0;
        Some(bits * 1e9 / ns as f64)
    }

    fn latency(
        &self,
        statistic: Statistic,
        operation: MeasuredOperation,
        took_ns: impl Fn(&Message) -> Option<u64>,
    ) -> Option<f64> {
        let messages = self.queue_pairs().flat_map(|qp| &qp.messages);
        let fits = |one: &&Message| status(one) == Some(0) && is_of(one, operation);
        let mut times: Vec<u64> = messages.filter(fits).filter_map(took_ns).collect();
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        let value = match statistic {
            Statistic::Min => *times.first()?,
            Statistic::Max => *times.last()?,
            Statistic::Mean => {
                let sum: u128 = times.iter().copied().map(u128::from).sum();
                u64::try_from(sum / times.len() as u128).ok()?
            }
            // The smallest value that at least this share of the values does not exceed.
            Statistic::Permille(permille) => {
                let rank = (times.len() as u64 * u64::from(permille)).div_ceil(1000);
                *times.get((rank as usize).saturating_sub(1).min(last))?
            }
        };
        Some(value as f64)
    }
}

fn status(message: &Message) -> Option<u8> {
    message.end.map(|end| end.status)
}

fn ended(qp: &TracedQueuePair, counts: impl Fn(u8) -> bool) -> usize {
    let sends = qp.messages.iter().filter_map(status);
    sends.chain(qp.receives.iter().map(|one| one.end.status)).filter(|status| counts(*status)).count()
}

fn is_of(message: &Message, operation: MeasuredOperation) -> bool {
    let opcode = SendOpcode::from_number(u32::from(message.opcode));
    let name = opcode.map_or("", SendOpcode::name);
    match operation {
        MeasuredOperation::Message => true,
        MeasuredOperation::Send => name.contains("SEND"),
        MeasuredOperation::Write => name.contains("WRITE"),
        MeasuredOperation::Read => name.contains("READ"),
        MeasuredOperation::Atomic => {
            opcode.is_some_and(|opcode| opcode.info().needs_response()) && !name.contains("READ")
        }
    }
}

/// Returns the address at the other end of a packet's path.
fn other_end(qp: &TracedQueuePair, packet: &TracedPacket) -> Option<IpAddr> {
    let (from, to) = *qp.paths.get(packet.path? as usize)?;
    Some(if packet.is_sent { to } else { from })
}

fn payload_bytes(packet: &TracedPacket) -> u64 {
    if let Some(opcode) = MrcOpcode::from_byte(packet.opcode) {
        // MRC's time stamps are optional, and this device always sends them.
        let headers = MrcHeaders::write_len(true, opcode.has_imm()) as u32 + ICRC_BYTES;
        return if opcode.is_write() { packet.length.saturating_sub(headers).into() } else { 0 };
    }
    let headers = Opcode::from_byte(packet.opcode).info().map_or(0, |info| info.header_bytes as u32);
    u64::from(packet.length.saturating_sub(headers).saturating_sub(ICRC_BYTES))
}

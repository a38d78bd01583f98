//! Packets with their sending and their arrival, as columns in order of time.

use std::collections::HashMap;
use std::net::IpAddr;

use pumice_device::trace::{Message, PacketIndex, Timeline, TracedPacket, TracedQueuePair};
use pumice_transport::wire::Opcode;
use serde::Serialize;

use super::requests::{QpNumbering, RequestColumns, peer};
use crate::trace::slices::{packet_kind, packet_name};

/// Flag: a fault plan lost the packet.
const LOST: u8 = 1;
/// Flag: the packet was dropped on arrival.
const DROPPED: u8 = 2;
/// Flag: the packet was sent to a process whose trace is given, and that trace has no arrival.
const NOT_ARRIVED: u8 = 4;
/// Flag: the packet answers a request, as an acknowledgement, or a response of a READ or an atomic.
const ANSWER: u8 = 8;
/// Flag: the packet arrived once more than it was sent.
const DOUBLED: u8 = 16;
/// Maximum number of requests that are searched for the one that an answer belongs to.
const MAX_LOOKED_AT: usize = 4096;

/// Columns with a row for each packet; -1 means unknown.
#[derive(Debug, Default, Serialize)]
pub(super) struct PacketColumns {
    /// Time of sending, or of arrival if no trace has the sending, after the one before, in ns.
    after_ns: Vec<u64>,
    /// Time from sending to arrival, in ns.
    took_ns: Vec<i64>,
    /// Indices of the queue pairs.
    from: Vec<i32>,
    to: Vec<i32>,
    opcode: Vec<u8>,
    psn: Vec<u32>,
    bytes: Vec<u32>,
    transmission: Vec<u32>,
    /// Row of the request that the packet belongs to, or answers.
    request: Vec<i64>,
    flags: Vec<u8>,
    /// Numbers and names of the opcodes in use.
    opcodes: Vec<(u8, String)>,
    /// Number of packets beyond the limit.
    #[serde(skip)]
    pub(super) left_out: usize,
}

/// The row of a packet before it has its index.
struct PacketRow {
    at_ns: u64,
    took_ns: Option<u64>,
    from: Option<usize>,
    to: Option<usize>,
    packet: TracedPacket,
    request: Option<usize>,
    flags: u8,
}

/// An index of the other ends of packets, and of the requests that they belong to.
struct ArrivalFinder<'a> {
    timeline: &'a Timeline,
    numbering: &'a QpNumbering,
    requests: &'a RequestColumns,
    /// Queue pairs by the addresses of their processes and their numbers.
    by_address: HashMap<(IpAddr, u32), (usize, usize)>,
}

impl PacketColumns {
    pub(super) fn of(
        timeline: &Timeline,
        numbering: &QpNumbering,
        requests: &RequestColumns,
        most: usize,
    ) -> PacketColumns {
        let mut flights = ArrivalFinder::new(timeline, numbering, requests).all();
        flights.sort_by_key(|flight| flight.at_ns);
        let mut columns =
            PacketColumns { left_out: flights.len().saturating_sub(most), ..PacketColumns::default() };
        let mut before_ns = 0;
        let number = |index: Option<usize>| index.map_or(-1, |index| index as i32);
        for flight in flights.iter().take(most) {
            let TracedPacket { opcode, psn, length, transmission, .. } = flight.packet;
            columns.after_ns.push(flight.at_ns - before_ns);
            before_ns = flight.at_ns;
            columns.took_ns.push(flight.took_ns.map_or(-1, |ns| ns as i64));
            columns.from.push(number(flight.from));
            columns.to.push(number(flight.to));
            columns.opcode.push(opcode);
            columns.psn.push(psn);
            columns.bytes.push(length);
            columns.transmission.push(transmission);
            columns.request.push(flight.request.map_or(-1, |row| row as i64));
            columns.flags.push(flight.flags);
        }
        let mut opcodes = columns.opcode.clone();
        opcodes.sort_unstable();
        opcodes.dedup();
        let name = |kind: u8| (kind, packet_name(kind));
        columns.opcodes = opcodes.into_iter().map(name).collect();
        columns
    }
}

/// Returns a packet with the number under which it is listed in place of its opcode.
fn shown(qp: &TracedQueuePair, packet: &TracedPacket) -> TracedPacket {
    TracedPacket { opcode: packet_kind(&qp.service, packet.opcode), ..*packet }
}

const fn key(location: PacketIndex) -> (usize, usize, usize) {
    (location.process, location.queue_pair, location.packet)
}

impl<'a> ArrivalFinder<'a> {
    fn new(
        timeline: &'a Timeline,
        numbering: &'a QpNumbering,
        requests: &'a RequestColumns,
    ) -> ArrivalFinder<'a> {
        let mut by_address = HashMap::new();
        for (process, one) in timeline.processes.iter().enumerate() {
            for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
                for address in &one.header.addresses {
                    by_address.insert((*address, qp.qpn), (process, queue_pair));
                }
            }
        }
        ArrivalFinder { timeline, numbering, requests, by_address }
    }

    fn all(&self) -> Vec<PacketRow> {
        let mut arrivals: HashMap<(usize, usize, usize), Vec<PacketIndex>> = HashMap::new();
        let mut departures = HashMap::new();
        for arrow in &self.timeline.arrows {
            arrivals.entry(key(arrow.from)).or_default().push(arrow.to);
            departures.insert(key(arrow.to), arrow.from);
        }
        let mut flights = Vec::new();
        for (process, one) in self.timeline.processes.iter().enumerate() {
            for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
                for (number, packet) in qp.packets.iter().enumerate() {
                    let location = PacketIndex { process, queue_pair, packet: number };
                    if packet.is_sent {
                        let ends = arrivals.get(&key(location)).map_or(&[][..], Vec::as_slice);
                        self.departure(location, qp, packet, ends, &mut flights);
                    } else if !departures.contains_key(&key(location)) {
                        flights.push(self.arrival(location, qp, packet));
                    }
                }
            }
        }
        flights
    }

    fn packet(&self, location: PacketIndex) -> Option<&'a TracedPacket> {
        self.timeline
            .processes
            .get(location.process)?
            .queue_pairs
            .get(location.queue_pair)?
            .packets
            .get(location.packet)
    }

    fn index(&self, location: PacketIndex) -> usize {
        self.numbering.index(location.process, location.queue_pair)
    }

    /// Adds a packet that was sent, once for each arrival.
    fn departure(
        &self,
        at: PacketIndex,
        qp: &TracedQueuePair,
        packet: &TracedPacket,
        ends: &[PacketIndex],
        out: &mut Vec<PacketRow>,
    ) {
        let answers = packet.side != 0;
        let flags = (u8::from(packet.is_lost) * LOST) | (u8::from(answers) * ANSWER);
        let request = if answers {
            self.peer_of(qp).and_then(|owner| self.answered(owner, packet))
        } else {
            self.sent_for((at.process, at.queue_pair), qp, packet)
        };
        let flight = |to, took_ns, flags| PacketRow {
            at_ns: packet.at_ns,
            took_ns,
            from: Some(self.index(at)),
            to,
            packet: shown(qp, packet),
            request,
            flags,
        };
        for (number, end) in ends.iter().enumerate() {
            let Some(arrived) = self.packet(*end) else { continue };
            let doubled = u8::from(number > 0) * DOUBLED;
            let dropped = u8::from(arrived.is_dropped) * DROPPED;
            let took_ns = arrived.at_ns.saturating_sub(packet.at_ns);
            out.push(flight(Some(self.index(*end)), Some(took_ns), flags | doubled | dropped));
        }
        if ends.is_empty() {
            let to = qp.paths.get(packet.path.map_or(usize::MAX, |path| path as usize));
            let to = to.and_then(|(_, to)| self.by_address.get(&(*to, packet.other_qpn)).copied());
            // Congestion notifications have no PSN by which their arrival could be found.
            let service = Opcode::from_byte(packet.opcode).info().map(|info| info.service);
            let is_expected = !packet.is_lost && service.is_some_and(|service| !service.is_notification());
            let missing = to.filter(|(process, _)| {
                let process = self.timeline.processes.get(*process);
                is_expected && process.is_some_and(|one| one.span_ns.1 > packet.at_ns)
            });
            let missing = u8::from(missing.is_some()) * NOT_ARRIVED;
            out.push(flight(
                to.map(|(process, qp)| self.numbering.index(process, qp)),
                None,
                flags | missing,
            ));
        }
    }

    /// Returns the row of a packet that arrived, and whose sending is in no trace.
    fn arrival(&self, at: PacketIndex, qp: &TracedQueuePair, packet: &TracedPacket) -> PacketRow {
        let info = Opcode::from_byte(packet.opcode).info();
        let answers = info.is_some_and(|info| !info.is_request);
        PacketRow {
            at_ns: packet.at_ns,
            took_ns: Some(0),
            from: self.peer_of(qp).map(|(process, qp)| self.numbering.index(process, qp)),
            to: Some(self.index(at)),
            packet: shown(qp, packet),
            request: if answers { self.answered((at.process, at.queue_pair), packet) } else { None },
            flags: (u8::from(packet.is_dropped) * DROPPED) | (u8::from(answers) * ANSWER),
        }
    }

    fn peer_of(&self, qp: &TracedQueuePair) -> Option<(usize, usize)> {
        qp.peer.and_then(|peer| self.by_address.get(&peer).copied()).or_else(|| peer(self.timeline, qp))
    }

    /// Returns the request that a packet of the requester belongs to: the latest one with its number.
    fn sent_for(&self, owner: (usize, usize), qp: &TracedQueuePair, packet: &TracedPacket) -> Option<usize> {
        let before = qp.messages.partition_point(|message| message.posted_ns <= packet.at_ns);
        let last = qp.messages.get(before.checked_sub(1)?)?;
        let of_connection = |message: &Message| (message.connection, message.number);
        let wanted = (last.connection, packet.message);
        let found = qp.messages.binary_search_by_key(&wanted, of_connection).ok()?;
        self.requests.of_message(self.numbering.index(owner.0, owner.1), found)
    }

    /// Returns the request of this queue pair that a packet answers: the latest one that has its PSN.
    fn answered(&self, (process, queue_pair): (usize, usize), packet: &TracedPacket) -> Option<usize> {
        let qp = self.timeline.processes.get(process)?.queue_pairs.get(queue_pair)?;
        let before = qp.messages.partition_point(|message| message.posted_ns <= packet.at_ns);
        let has_it =
            |message: &Message| packet.psn.wrapping_sub(message.psn) & 0x00ff_ffff < message.packets.max(1);
        let looked_at = before.saturating_sub(MAX_LOOKED_AT)..before;
        let found = qp.messages.get(looked_at.clone())?.iter().rposition(has_it)?;
        self.requests.of_message(self.numbering.index(process, queue_pair), looked_at.start + found)
    }
}

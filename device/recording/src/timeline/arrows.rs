//! Matches each packet that arrived with the one that was sent.

use std::collections::HashMap;
use std::net::IpAddr;

use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::wire::Opcode;

use crate::steps::count_steps;

use super::model::{Arrow, PacketIndex, Timeline, TracedPacket, TracedQueuePair};

/// The properties that a packet has at both ends: its way, the queue pair that it is addressed to, its
/// direction and its PSN; for a datagram also the queue pair that sends it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ArrowKey {
    from: IpAddr,
    to: IpAddr,
    destination: u32,
    source: u32,
    is_request: bool,
    psn: u32,
}

impl ArrowKey {
    pub(super) fn of(qp: &TracedQueuePair, packet: &TracedPacket) -> Option<ArrowKey> {
        let (from, to) = *qp.paths.get(packet.path? as usize)?;
        if let Some(opcode) = MrcOpcode::from_byte(packet.opcode) {
            let destination = if packet.is_sent { packet.other_qpn } else { qp.qpn };
            let is_request = opcode.is_write();
            // Answers of several kinds may have one PSN, which has 24 bits.
            let psn = if is_request { packet.psn } else { packet.psn | u32::from(packet.opcode) << 24 };
            return Some(ArrowKey { from, to, destination, source: 0, is_request, psn });
        }
        let opcode = Opcode::from_byte(packet.opcode);
        let info = opcode.info()?;
        // Congestion notifications have no PSN.
        if info.service.is_notification() {
            return None;
        }
        let (own, other) = (qp.qpn, packet.other_qpn);
        let (destination, source) = if packet.is_sent { (other, own) } else { (own, other) };
        let source = if info.service.is_datagram() { source } else { 0 };
        Some(ArrowKey { from, to, destination, source, is_request: info.is_request, psn: packet.psn })
    }
}

/// The sending or the arrival of a packet with a given key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PacketEnd {
    key: u32,
    at_ns: u64,
    /// Arrival rather than sending. Of two events at the same time, the sending sorts first.
    is_arrival: bool,
    process: u32,
    queue_pair: u32,
    packet: u32,
}

impl PacketEnd {
    const fn index(&self) -> PacketIndex {
        let PacketEnd { process, queue_pair, packet, .. } = *self;
        PacketIndex { process: process as usize, queue_pair: queue_pair as usize, packet: packet as usize }
    }
}

/// Finds, for every packet that arrived, the one that was sent: the latest one before that no other arrival
/// was matched with. If there is none, the packet was duplicated on its way.
pub(super) fn draw(timeline: &mut Timeline) {
    let mut ends = ends(timeline);
    ends.sort_unstable();
    let mut arrows = Vec::new();
    for of_key in ends.chunk_by(|one, other| one.key == other.key) {
        // Sent packets without an arrival yet, and the packet that was sent last.
        let (mut fresh, mut latest): (Vec<&PacketEnd>, Option<&PacketEnd>) = (Vec::new(), None);
        for end in of_key {
            count_steps(1);
            if !end.is_arrival {
                fresh.push(end);
                latest = Some(end);
            } else if let Some(sent) = fresh.pop().or(latest) {
                let arrow = Arrow { from: sent.index(), to: end.index() };
                arrows.push((end.at_ns, end.process, end.queue_pair, end.packet, arrow));
            }
        }
    }
    drop(ends);
    arrows.sort_unstable_by_key(|(at_ns, process, queue_pair, packet, _)| {
        (*at_ns, *process, *queue_pair, *packet)
    });
    timeline.arrows.extend(arrows.into_iter().map(|(.., arrow)| arrow));
}

/// Returns the sendings and arrivals of all packets that have a key and that no fault plan lost.
fn ends(timeline: &Timeline) -> Vec<PacketEnd> {
    let mut keys: HashMap<ArrowKey, u32> = HashMap::new();
    let mut ends = Vec::new();
    for (process, one) in (0..).zip(&timeline.processes) {
        for (queue_pair, qp) in (0..).zip(&one.queue_pairs) {
            for (packet, about) in (0..).zip(&qp.packets).filter(|(_, about)| !about.is_lost) {
                let Some(key) = ArrowKey::of(qp, about) else { continue };
                let next = keys.len() as u32;
                let key = *keys.entry(key).or_insert(next);
                let is_arrival = !about.is_sent;
                ends.push(PacketEnd { key, at_ns: about.at_ns, is_arrival, process, queue_pair, packet });
            }
        }
    }
    ends
}

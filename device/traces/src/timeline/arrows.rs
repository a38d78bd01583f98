//! Which packet that arrived is which one that was sent.

use std::collections::HashMap;
use std::net::IpAddr;

use pumice_transport::wire::Opcode;

use super::model::{Arrow, Packet, PacketIndex, QueuePair, Timeline};

/// What a packet has at both ends: its way, the queue pair that it is for, its direction and its PSN; of a
/// datagram also the queue pair that sends it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    from: IpAddr,
    to: IpAddr,
    destination: u32,
    source: u32,
    is_request: bool,
    psn: u32,
}

impl Key {
    pub(super) fn of(qp: &QueuePair, packet: &Packet) -> Option<Key> {
        let (from, to) = *qp.ways.get(packet.way? as usize)?;
        let opcode = Opcode::from_byte(packet.opcode);
        let info = opcode.info()?;
        // Congestion notifications have no PSN.
        if info.service.is_notification() {
            return None;
        }
        let (own, other) = (qp.qpn, packet.other_qpn);
        let (destination, source) = if packet.is_sent { (other, own) } else { (own, other) };
        let source = if info.service.is_datagram() { source } else { 0 };
        Some(Key { from, to, destination, source, is_request: info.is_request, psn: packet.psn })
    }
}

/// A packet that was sent.
struct Sent {
    at_ns: u64,
    index: PacketIndex,
    is_drawn: bool,
}

/// Finds for every packet that arrived the one that was sent: the latest before, of those that no other
/// arrival has been found for; if there is none of these, the packet was doubled on its way.
pub(super) fn draw(timeline: &mut Timeline) {
    let mut sent: HashMap<Key, Vec<Sent>> = HashMap::new();
    let mut received = Vec::new();
    for (process, one) in timeline.processes.iter().enumerate() {
        for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
            for (packet, about) in qp.packets.iter().enumerate() {
                let index = PacketIndex { process, queue_pair, packet };
                let Some(key) = Key::of(qp, about) else { continue };
                if !about.is_sent {
                    received.push((about.at_ns, key, index));
                } else if !about.is_lost {
                    let at_ns = about.at_ns;
                    sent.entry(key).or_default().push(Sent { at_ns, index, is_drawn: false });
                }
            }
        }
    }
    for list in sent.values_mut() {
        list.sort_by_key(|one| one.at_ns);
    }
    received.sort_by_key(|(at_ns, ..)| *at_ns);
    for (at_ns, key, to) in received {
        let Some(list) = sent.get_mut(&key) else { continue };
        let before = list.partition_point(|one| one.at_ns <= at_ns);
        let Some(candidates) = list.get_mut(..before) else { continue };
        let fresh = candidates.iter().rposition(|one| !one.is_drawn);
        let Some(found) = candidates.get_mut(fresh.unwrap_or(before.wrapping_sub(1))) else { continue };
        found.is_drawn = true;
        timeline.arrows.push(Arrow { from: found.index, to });
    }
}

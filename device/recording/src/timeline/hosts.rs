//! Matches each packet that arrived with the one that was sent, and aligns the clocks of several hosts by
//! them.
//!
//! A packet takes some time in either direction, and the receiver's clock is ahead of the sender's by some
//! offset. If the fastest packets of both directions took the same time, half of the difference of their
//! apparent times is the offset; the error is at most half of their sum.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::wire::Opcode;

use super::{Arrow, PacketIndex, Timeline, TimelineProcess, TracedPacket, TracedQueuePair};
use crate::steps::count_steps;

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

/// Maximum number of packets whose times are compared.
const MAX_COMPARED: usize = 1 << 21;

/// The alignment of a host's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClockAlignment {
    /// Offset that is added to the host's monotonic clock, in ns.
    pub(super) shift_ns: i128,
    /// The estimate by packets; `None` if the wall clock was used.
    pub(super) by: Option<ClockOffset>,
}

/// The offset between two clocks, as packets show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockOffset {
    /// Offset by which the clock is ahead of the other one, in ns.
    pub(super) ahead_ns: i128,
    /// Maximum error of the offset, in ns. It is below 0 if the clocks drifted while packets were sent.
    pub(super) error_ns: i128,
    /// Number of packets in the direction that has fewer.
    pub(super) packets: usize,
}

/// The fastest packet of a direction, by the two clocks, and the number of packets.
#[derive(Debug, Clone, Copy)]
struct FastestPacket {
    took_ns: i128,
    packets: usize,
}

/// Returns the monotonic clock of a process's host at a time of its trace.
fn host_ns(process: &TimelineProcess, at_ns: u64) -> i128 {
    i128::from(process.header.monotonic_base_ns) + i128::from(at_ns)
}

/// Finds, for each of `count` hosts, the offset that aligns its clock with that of the first one. `host_of`
/// is the host of each process. A host that no packet connects with the first one is aligned by its wall
/// clock.
pub(super) fn alignments(timeline: &Timeline, host_of: &[usize], count: usize) -> Vec<ClockAlignment> {
    let wall = |host: usize| {
        let first = host_of.iter().position(|one| *one == host);
        let header = first.and_then(|index| timeline.processes.get(index)).map(|process| &process.header);
        header.map_or(0, |header| i128::from(header.wall_base_ns) - i128::from(header.monotonic_base_ns))
    };
    let mut all: Vec<ClockAlignment> =
        (0..count).map(|host| ClockAlignment { shift_ns: wall(host), by: None }).collect();
    let fastest = fastest(timeline, host_of);
    let mut joined = vec![0];
    // Each round adds the host whose clock is known best.
    loop {
        let known = joined.iter().filter_map(|host| Some((*host, all.get(*host)?.shift_ns)));
        let others = || (0..count).filter(|host| !joined.contains(host));
        let estimates = known.flat_map(|(from, shift)| others().map(move |to| (from, to, shift)));
        let possible =
            estimates.filter_map(|(from, to, shift)| Some((estimate(&fastest, from, to)?, to, shift)));
        let Some((by, host, shift_ns)) = possible.min_by_key(|(by, ..)| by.error_ns.abs()) else {
            return all;
        };
        if let Some(alignments) = all.get_mut(host) {
            *alignments = ClockAlignment { shift_ns: shift_ns - by.ahead_ns, by: Some(by) };
        }
        joined.push(host);
    }
}

/// Estimates how far the clock of `other` is ahead of that of `host`; `None` if packets went one way only.
fn estimate(
    fastest: &HashMap<(usize, usize), FastestPacket>,
    host: usize,
    other: usize,
) -> Option<ClockOffset> {
    let (there, back) = (fastest.get(&(host, other))?, fastest.get(&(other, host))?);
    Some(ClockOffset {
        ahead_ns: (there.took_ns - back.took_ns) / 2,
        error_ns: (there.took_ns + back.took_ns) / 2,
        packets: there.packets.min(back.packets),
    })
}

/// Finds the fastest packets between hosts. A packet counts if each end recorded it once.
fn fastest(timeline: &Timeline, host_of: &[usize]) -> HashMap<(usize, usize), FastestPacket> {
    let mut seen: HashMap<(ArrowKey, u8, u32), [SightingTimes; 2]> = HashMap::new();
    for (process, host) in timeline.processes.iter().zip(host_of) {
        for qp in &process.queue_pairs {
            for packet in qp.packets.iter().filter(|packet| !packet.is_lost) {
                let Some(key) = ArrowKey::of(qp, packet) else { continue };
                let budget = seen.len() < MAX_COMPARED;
                let ends = match seen.entry((key, packet.opcode, packet.length)) {
                    Entry::Vacant(entry) if budget => entry.insert([SightingTimes::None; 2]),
                    Entry::Vacant(_) => continue,
                    Entry::Occupied(entry) => entry.into_mut(),
                };
                let [sent, received] = ends;
                let end = if packet.is_sent { sent } else { received };
                *end = match end {
                    SightingTimes::None => SightingTimes::One(*host, host_ns(process, packet.at_ns)),
                    SightingTimes::One(..) | SightingTimes::Many => SightingTimes::Many,
                };
            }
        }
    }
    let mut fastest: HashMap<(usize, usize), FastestPacket> = HashMap::new();
    for ends in seen.into_values() {
        let [SightingTimes::One(from, sent_ns), SightingTimes::One(to, received_ns)] = ends else { continue };
        if from == to {
            continue;
        }
        let took_ns = received_ns - sent_ns;
        let best = fastest.entry((from, to)).or_insert(FastestPacket { took_ns, packets: 0 });
        best.took_ns = best.took_ns.min(took_ns);
        best.packets += 1;
    }
    fastest
}

/// The times at which a packet was seen at one of its ends, and the host.
#[derive(Debug, Clone, Copy)]
enum SightingTimes {
    None,
    One(usize, i128),
    /// The packet was seen several times, so that sending and arrival cannot be matched.
    Many,
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::super::{TracedPacket, TracedQueuePair};
    use super::*;

    const ADDRESSES: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];

    /// Returns an RC packet to or from queue pair 7 of the other end.
    fn packet(at_ns: u64, is_sent: bool, psn: u32) -> TracedPacket {
        TracedPacket {
            at_ns,
            is_sent,
            is_lost: false,
            is_dropped: false,
            side: 0,
            opcode: 4,
            psn,
            length: 100,
            transmission: 1,
            message: 0,
            other_qpn: 7,
            path: Some(u32::from(!is_sent)),
        }
    }

    fn host(own: usize, base_ns: u64, wall_ns: u64, packets: Vec<TracedPacket>) -> TimelineProcess {
        let mut process = TimelineProcess::default();
        process.header.monotonic_base_ns = base_ns;
        process.header.wall_base_ns = wall_ns;
        let paths = vec![(ADDRESSES[own], ADDRESSES[1 - own]), (ADDRESSES[1 - own], ADDRESSES[own])];
        process.queue_pairs.push(TracedQueuePair { qpn: 7, packets, paths, ..TracedQueuePair::default() });
        process
    }

    fn timeline(processes: Vec<TimelineProcess>) -> Timeline {
        Timeline { processes, ..Timeline::default() }
    }

    #[test]
    fn the_fastest_packets_of_both_directions_give_the_offset() {
        // The second clock is 1,000,000 ns ahead. Packets take at least 300 ns to it and 500 ns back.
        let one =
            vec![packet(0, true, 1), packet(1000, true, 2), packet(5500, false, 3), packet(7000, false, 4)];
        let other =
            vec![packet(900, false, 1), packet(1300, false, 2), packet(5000, true, 3), packet(6000, true, 4)];
        let all = timeline(vec![host(0, 0, 50, one), host(1, 1_000_000, 77, other)]);
        let alignments = alignments(&all, &[0, 1], 2);
        let by = ClockOffset { ahead_ns: 999_900, error_ns: 400, packets: 2 };
        assert_eq!(
            alignments,
            [
                ClockAlignment { shift_ns: 50, by: None },
                ClockAlignment { shift_ns: 50 - 999_900, by: Some(by) }
            ]
        );
    }

    #[test]
    fn packets_that_came_again_or_went_one_way_say_nothing() {
        let walls = [
            ClockAlignment { shift_ns: 50, by: None },
            ClockAlignment { shift_ns: 77 - 1_000_000, by: None },
        ];
        let one = vec![packet(0, true, 1), packet(10, true, 1), packet(5500, false, 3)];
        let other = vec![packet(900, false, 1), packet(5000, true, 3)];
        let all = timeline(vec![host(0, 0, 50, one), host(1, 1_000_000, 77, other)]);
        assert_eq!(alignments(&all, &[0, 1], 2), walls);
        let strangers = timeline(vec![
            host(0, 0, 50, vec![packet(0, true, 1), packet(1, false, 2)]),
            host(1, 1_000_000, 77, vec![packet(0, true, 8), packet(1, false, 9)]),
        ]);
        assert_eq!(alignments(&strangers, &[0, 1], 2), walls);
    }

    #[test]
    fn a_third_host_is_put_by_the_one_that_it_talks_to() {
        let mut middle = host(1, 1000, 0, vec![packet(10, false, 1), packet(20, true, 2)]);
        let mut far = host(0, 5000, 0, vec![packet(10, true, 1), packet(20, false, 2)]);
        // The middle host exchanges packets with the last one on another queue pair.
        let more = host(1, 1000, 0, vec![packet(15, false, 1), packet(20, true, 2)]).queue_pairs.remove(0);
        middle.queue_pairs.push(TracedQueuePair { qpn: 9, ..more });
        for packet in &mut far.queue_pairs[0].packets {
            packet.other_qpn = 9;
        }
        far.queue_pairs[0].qpn = 8;
        let to = &mut middle.queue_pairs[1].packets[1];
        to.other_qpn = 8;
        let near = host(0, 0, 3, vec![packet(5, true, 1), packet(25, false, 2)]);
        let all = timeline(vec![near, middle, far]);
        let alignments = alignments(&all, &[0, 1, 2], 3);
        // The middle clock is 1000 ahead of the first, and some 4000 behind the last.
        assert_eq!((alignments[1].shift_ns, alignments[2].shift_ns), (3 - 1000, 3 - 4997));
        assert!(alignments[2].by.is_some_and(|by| by.packets == 1));
    }
}

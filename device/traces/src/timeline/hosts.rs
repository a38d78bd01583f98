//! The clocks of several hosts, put together by packets that one host sent and another received.
//!
//! A packet takes some time in either direction, and the clock of the receiver is some offset ahead of the
//! sender's. Of the fastest packets of both directions, half of the difference is the offset, if they took
//! the same time; it is wrong by half of their sum at most.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::arrows::Key;
use super::model::{Timeline, TimelineProcess};

/// Packets of which the times are compared, at most.
const MAX_COMPARED: usize = 1 << 21;

/// How a host's clock was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Put {
    /// What is added to its monotonic clock, in ns.
    pub(super) shift_ns: i128,
    /// By packets.
    pub(super) by: Option<Estimate>,
}

/// What packets say of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Estimate {
    /// How far the clock is ahead of the other one, in ns.
    pub(super) ahead_ns: i128,
    /// It is wrong by so much at most. Below 0 if the clocks have run apart while packets went.
    pub(super) error_ns: i128,
    /// Packets of the direction that has fewer.
    pub(super) packets: usize,
}

/// The fastest packet of a direction, by the two clocks, and how many there are.
#[derive(Debug, Clone, Copy)]
struct Fastest {
    took_ns: i128,
    packets: usize,
}

/// The monotonic clock of a process's host at a time of its trace.
fn host_ns(process: &TimelineProcess, at_ns: u64) -> i128 {
    i128::from(process.header.monotonic_base_ns) + i128::from(at_ns)
}

/// Finds for each of `count` hosts what puts its clock beside that of the first one. `host_of` is the host of
/// each process. A host that no packet joins to the first one has its wall clock.
pub(super) fn put(timeline: &Timeline, host_of: &[usize], count: usize) -> Vec<Put> {
    let wall = |host: usize| {
        let first = host_of.iter().position(|one| *one == host);
        let header = first.and_then(|index| timeline.processes.get(index)).map(|process| &process.header);
        header.map_or(0, |header| i128::from(header.wall_base_ns) - i128::from(header.monotonic_base_ns))
    };
    let mut all: Vec<Put> = (0..count).map(|host| Put { shift_ns: wall(host), by: None }).collect();
    let fastest = fastest(timeline, host_of);
    let mut joined = vec![0];
    // In each round the host comes whose clock is known best.
    loop {
        let known = joined.iter().filter_map(|host| Some((*host, all.get(*host)?.shift_ns)));
        let others = || (0..count).filter(|host| !joined.contains(host));
        let estimates = known.flat_map(|(from, shift)| others().map(move |to| (from, to, shift)));
        let possible =
            estimates.filter_map(|(from, to, shift)| Some((estimate(&fastest, from, to)?, to, shift)));
        let Some((by, host, shift_ns)) = possible.min_by_key(|(by, ..)| by.error_ns.abs()) else {
            return all;
        };
        if let Some(put) = all.get_mut(host) {
            *put = Put { shift_ns: shift_ns - by.ahead_ns, by: Some(by) };
        }
        joined.push(host);
    }
}

/// How far the clock of `other` is ahead of that of `host`; none if packets went one way only.
fn estimate(fastest: &HashMap<(usize, usize), Fastest>, host: usize, other: usize) -> Option<Estimate> {
    let (there, back) = (fastest.get(&(host, other))?, fastest.get(&(other, host))?);
    Some(Estimate {
        ahead_ns: (there.took_ns - back.took_ns) / 2,
        error_ns: (there.took_ns + back.took_ns) / 2,
        packets: there.packets.min(back.packets),
    })
}

/// The fastest packets between hosts. A packet counts if it was seen once at each end.
fn fastest(timeline: &Timeline, host_of: &[usize]) -> HashMap<(usize, usize), Fastest> {
    let mut seen: HashMap<(Key, u8, u32), [Times; 2]> = HashMap::new();
    for (process, host) in timeline.processes.iter().zip(host_of) {
        for qp in &process.queue_pairs {
            for packet in qp.packets.iter().filter(|packet| !packet.is_lost) {
                let Some(key) = Key::of(qp, packet) else { continue };
                let room = seen.len() < MAX_COMPARED;
                let ends = match seen.entry((key, packet.opcode, packet.length)) {
                    Entry::Vacant(entry) if room => entry.insert([Times::None; 2]),
                    Entry::Vacant(_) => continue,
                    Entry::Occupied(entry) => entry.into_mut(),
                };
                let [sent, received] = ends;
                let end = if packet.is_sent { sent } else { received };
                *end = match end {
                    Times::None => Times::One(*host, host_ns(process, packet.at_ns)),
                    Times::One(..) | Times::Many => Times::Many,
                };
            }
        }
    }
    let mut fastest: HashMap<(usize, usize), Fastest> = HashMap::new();
    for ends in seen.into_values() {
        let [Times::One(from, sent_ns), Times::One(to, received_ns)] = ends else { continue };
        if from == to {
            continue;
        }
        let took_ns = received_ns - sent_ns;
        let best = fastest.entry((from, to)).or_insert(Fastest { took_ns, packets: 0 });
        best.took_ns = best.took_ns.min(took_ns);
        best.packets += 1;
    }
    fastest
}

/// When a packet was seen at one of its ends, and on which host.
#[derive(Debug, Clone, Copy)]
enum Times {
    None,
    One(usize, i128),
    /// It came again: which is which cannot be told.
    Many,
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::super::model::{Packet, QueuePair};
    use super::*;

    const ADDRESSES: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];

    /// A packet of RC to queue pair 7 of the other end, or from there.
    fn packet(at_ns: u64, is_sent: bool, psn: u32) -> Packet {
        Packet {
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
            way: Some(u32::from(!is_sent)),
        }
    }

    fn host(own: usize, base_ns: u64, wall_ns: u64, packets: Vec<Packet>) -> TimelineProcess {
        let mut process = TimelineProcess::default();
        process.header.monotonic_base_ns = base_ns;
        process.header.wall_base_ns = wall_ns;
        let ways = vec![(ADDRESSES[own], ADDRESSES[1 - own]), (ADDRESSES[1 - own], ADDRESSES[own])];
        process.queue_pairs.push(QueuePair { qpn: 7, packets, ways, ..QueuePair::default() });
        process
    }

    fn timeline(processes: Vec<TimelineProcess>) -> Timeline {
        Timeline { processes, ..Timeline::default() }
    }

    #[test]
    fn the_fastest_packets_of_both_directions_give_the_offset() {
        // The second clock is 1,000,000 ns ahead. There 300 ns at least, back 500 ns at least.
        let one =
            vec![packet(0, true, 1), packet(1000, true, 2), packet(5500, false, 3), packet(7000, false, 4)];
        let other =
            vec![packet(900, false, 1), packet(1300, false, 2), packet(5000, true, 3), packet(6000, true, 4)];
        let all = timeline(vec![host(0, 0, 50, one), host(1, 1_000_000, 77, other)]);
        let put = put(&all, &[0, 1], 2);
        let by = Estimate { ahead_ns: 999_900, error_ns: 400, packets: 2 };
        assert_eq!(put, [Put { shift_ns: 50, by: None }, Put { shift_ns: 50 - 999_900, by: Some(by) }]);
    }

    #[test]
    fn packets_that_came_again_or_went_one_way_say_nothing() {
        let walls = [Put { shift_ns: 50, by: None }, Put { shift_ns: 77 - 1_000_000, by: None }];
        let one = vec![packet(0, true, 1), packet(10, true, 1), packet(5500, false, 3)];
        let other = vec![packet(900, false, 1), packet(5000, true, 3)];
        let all = timeline(vec![host(0, 0, 50, one), host(1, 1_000_000, 77, other)]);
        assert_eq!(put(&all, &[0, 1], 2), walls);
        let strangers = timeline(vec![
            host(0, 0, 50, vec![packet(0, true, 1), packet(1, false, 2)]),
            host(1, 1_000_000, 77, vec![packet(0, true, 8), packet(1, false, 9)]),
        ]);
        assert_eq!(put(&strangers, &[0, 1], 2), walls);
    }

    #[test]
    fn a_third_host_is_put_by_the_one_that_it_talks_to() {
        let mut middle = host(1, 1000, 0, vec![packet(10, false, 1), packet(20, true, 2)]);
        let mut far = host(0, 5000, 0, vec![packet(10, true, 1), packet(20, false, 2)]);
        // The middle one talks to another on another queue pair.
        let more = host(1, 1000, 0, vec![packet(15, false, 1), packet(20, true, 2)]).queue_pairs.remove(0);
        middle.queue_pairs.push(QueuePair { qpn: 9, ..more });
        for packet in &mut far.queue_pairs[0].packets {
            packet.other_qpn = 9;
        }
        far.queue_pairs[0].qpn = 8;
        let to = &mut middle.queue_pairs[1].packets[1];
        to.other_qpn = 8;
        let near = host(0, 0, 3, vec![packet(5, true, 1), packet(25, false, 2)]);
        let all = timeline(vec![near, middle, far]);
        let put = put(&all, &[0, 1, 2], 3);
        // The middle is 1000 ahead of the first, and some 4000 behind the last.
        assert_eq!((put[1].shift_ns, put[2].shift_ns), (3 - 1000, 3 - 4997));
        assert!(put[2].by.is_some_and(|by| by.packets == 1));
    }
}

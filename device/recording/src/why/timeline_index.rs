//! Indices of a timeline in which the judge looks things up without a scan, so that a trace of twice as many
//! messages takes about twice the time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use crate::steps::count_steps;
use crate::timeline::{Message, PacketIndex, Timeline, TimelineEventKind, TracedPacket, TracedQueuePair};

/// A list of numbers with a tree of maxima above it.
#[derive(Debug, Default)]
pub(super) struct MaxTree {
    /// The leaves from the middle on; each node before is the maximum of its two children.
    nodes: Vec<u64>,
    leaves: usize,
    len: usize,
}

impl MaxTree {
    pub(super) fn of(values: impl ExactSizeIterator<Item = u64>) -> MaxTree {
        let len = values.len();
        let leaves = len.next_power_of_two();
        let mut nodes = vec![0; leaves * 2];
        for (node, value) in nodes.iter_mut().skip(leaves).zip(values) {
            *node = value;
        }
        for at in (1..leaves).rev() {
            let below = nodes.get(at * 2..at * 2 + 2).and_then(|both| both.iter().max()).copied();
            if let (Some(node), Some(below)) = (nodes.get_mut(at), below) {
                *node = below;
            }
        }
        MaxTree { nodes, leaves, len }
    }

    fn node(&self, at: usize) -> u64 {
        count_steps(1);
        self.nodes.get(at).copied().unwrap_or(0)
    }

    /// Returns the index of the first number, from an index on, that is above a limit.
    fn first_above(&self, from: usize, limit: u64) -> Option<usize> {
        if from >= self.len {
            return None;
        }
        let mut at = from + self.leaves;
        while self.node(at) <= limit {
            // The range behind this node, as large as one node covers.
            at += 1;
            if at.is_power_of_two() {
                return None;
            }
            at >>= at.trailing_zeros();
        }
        while at < self.leaves {
            at *= 2;
            at += usize::from(self.node(at) <= limit);
        }
        Some(at - self.leaves)
    }

    /// Returns the maximum of a range; 0 if it is empty.
    pub(super) fn greatest(&self, range: Range<usize>) -> u64 {
        let (mut from, mut to) = (range.start + self.leaves, range.end.min(self.len) + self.leaves);
        let mut greatest = 0;
        while from < to {
            if from % 2 == 1 {
                greatest = greatest.max(self.node(from));
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                greatest = greatest.max(self.node(to));
            }
            (from, to) = (from / 2, to / 2);
        }
        greatest
    }
}

/// Number of PSNs.
const PSNS: u32 = 1 << 24;

/// Finds packets, requests and peers of a timeline.
#[derive(Debug)]
pub(super) struct TimelineIndex<'a> {
    timeline: &'a Timeline,
    /// Queue pairs by the addresses of their processes and their numbers.
    peers: HashMap<(IpAddr, u32), (usize, usize)>,
    processes: Vec<Vec<QpIndex<'a>>>,
}

/// Finds what belongs to one queue pair.
#[derive(Debug)]
pub(super) struct QpIndex<'a> {
    qp: &'a TracedQueuePair,
    /// For each packet, one more than the index of the arrow that begins there; 0 if none does.
    arrows: Vec<u32>,
    /// Packets that the requester sent, by message and time.
    requests: Vec<u32>,
    /// Packets that the responder sent, by PSN and time.
    answers: Vec<u32>,
    /// Time at which each message was acknowledged, or had ended.
    over_ns: MaxTree,
    /// Setbacks that were about a message's own packet: their times, and the messages.
    setbacks: Vec<(u64, u32)>,
    /// Receive requests: when they completed and were polled, in this order.
    received: Vec<(u64, Option<u64>)>,
    /// Times at which receive requests were polled.
    polled_ns: MaxTree,
    /// Times at which receive requests were posted.
    posted_ns: Vec<u64>,
    rnr_naks_ns: Vec<u64>,
    /// Moments of the log, and state changes.
    logged: Vec<u32>,
    states: Vec<u32>,
}

impl<'a> TimelineIndex<'a> {
    pub(super) fn of(timeline: &'a Timeline) -> TimelineIndex<'a> {
        let (mut peers, mut processes) = (HashMap::new(), Vec::new());
        for (process, one) in timeline.processes.iter().enumerate() {
            for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
                for address in &one.header.addresses {
                    peers.entry((*address, qp.qpn)).or_insert((process, queue_pair));
                }
            }
            processes.push(one.queue_pairs.iter().map(QpIndex::of).collect());
        }
        let mut timeline_index = TimelineIndex { timeline, peers, processes };
        for (number, arrow) in (1..).zip(&timeline.arrows) {
            let PacketIndex { process, queue_pair, packet } = arrow.from;
            let of = timeline_index.processes.get_mut(process).and_then(|one| one.get_mut(queue_pair));
            if let Some(entry) = of.and_then(|of: &mut QpIndex<'_>| of.arrows.get_mut(packet)) {
                *entry = number;
            }
        }
        timeline_index
    }

    pub(super) fn queue_pair(&self, process: usize, queue_pair: usize) -> Option<&QpIndex<'a>> {
        self.processes.get(process)?.get(queue_pair)
    }

    /// Returns the position of the queue pair with this address and number.
    pub(super) fn peer(&self, peer: (IpAddr, u32)) -> Option<(usize, usize)> {
        self.peers.get(&peer).copied()
    }

    /// Returns the position at which a packet arrived.
    pub(super) fn arrival(&self, process: usize, queue_pair: usize, packet: usize) -> Option<PacketIndex> {
        let arrow = *self.queue_pair(process, queue_pair)?.arrows.get(packet)?;
        Some(self.timeline.arrows.get((arrow as usize).checked_sub(1)?)?.to)
    }
}

/// Returns the time at which a message was over for its queue pair, or `u64::MAX` if it is not.
pub(super) fn over_ns(message: &Message) -> u64 {
    message.acknowledged_ns.or(message.end.map(|end| end.at_ns)).unwrap_or(u64::MAX)
}

/// Returns the items, sorted by time, from one time to another, both included.
pub(super) fn within<T>(all: &[T], at_ns: impl Fn(&T) -> u64, (from_ns, to_ns): (u64, u64)) -> &[T] {
    let first = all.partition_point(|one| at_ns(one) < from_ns);
    let behind = all.partition_point(|one| at_ns(one) <= to_ns);
    let found = all.get(first..behind).unwrap_or_default();
    count_steps(found.len());
    found
}

const fn psn_of(packet: &TracedPacket) -> u32 {
    packet.psn & (PSNS - 1)
}

impl<'a> QpIndex<'a> {
    fn of(qp: &'a TracedQueuePair) -> QpIndex<'a> {
        let of_side = |side: u8| {
            let sent = (0_u32..).zip(&qp.packets).filter(|(_, one)| one.is_sent && one.side == side);
            sent.map(|(index, _)| index).collect::<Vec<u32>>()
        };
        let packet = |index: &u32| qp.packets.get(*index as usize);
        let (mut requests, mut answers) = (of_side(0), of_side(1));
        requests.sort_by_key(|index| packet(index).map(|one| (one.message, one.at_ns)));
        answers.sort_by_key(|index| packet(index).map(|one| (psn_of(one), one.at_ns)));
        let mut setbacks = Vec::new();
        for (number, message) in (0_u32..).zip(&qp.messages) {
            let own = message.setbacks.iter().filter(|one| one.is_own);
            setbacks.extend(own.map(|one| (one.at_ns, number)));
        }
        setbacks.sort_unstable();
        let mut received: Vec<_> = qp.receives.iter().map(|one| (one.end.at_ns, one.polled_ns)).collect();
        received.sort_unstable();
        let mut posted_ns: Vec<u64> = qp.receives.iter().filter_map(|one| one.posted_ns).collect();
        posted_ns.sort_unstable();
        let mut rnr_naks_ns = qp.rnr_naks_ns.clone();
        rnr_naks_ns.sort_unstable();
        let moments = |kind: TimelineEventKind| {
            let all = (0_u32..).zip(&qp.moments).filter(move |(_, one)| one.kind == kind);
            all.map(|(index, _)| index).collect::<Vec<u32>>()
        };
        QpIndex {
            arrows: vec![0; qp.packets.len()],
            requests,
            answers,
            over_ns: MaxTree::of(qp.messages.iter().map(over_ns)),
            setbacks,
            polled_ns: MaxTree::of(received.iter().map(|(_, polled_ns)| polled_ns.unwrap_or(u64::MAX))),
            received,
            posted_ns,
            rnr_naks_ns,
            logged: moments(TimelineEventKind::Log),
            states: moments(TimelineEventKind::State),
            qp,
        }
    }

    fn packet(&self, index: u32) -> Option<(usize, &'a TracedPacket)> {
        count_steps(1);
        Some((index as usize, self.qp.packets.get(index as usize)?))
    }

    /// Returns the range of a list of packets, sorted by a key, that has the keys in a range.
    fn range<K: Ord>(
        &self,
        list: &[u32],
        key: impl Fn(&TracedPacket) -> K,
        from: &K,
        to: &K,
    ) -> Range<usize> {
        let is_before = |index: &u32, limit: &K, or_at: bool| {
            self.packet(*index).is_some_and(|(_, packet)| {
                let key = key(packet);
                key < *limit || (or_at && key == *limit)
            })
        };
        let first = list.partition_point(|index| is_before(index, from, false));
        first..list.partition_point(|index| is_before(index, to, true)).max(first)
    }

    /// Returns the packets of a message that were sent from one time to another, both included, in their
    /// order.
    pub(super) fn requests(
        &self,
        message: u64,
        (from_ns, to_ns): (u64, u64),
    ) -> impl DoubleEndedIterator<Item = (usize, &'a TracedPacket)> {
        let key = |packet: &TracedPacket| (packet.message, packet.at_ns);
        let range = self.range(&self.requests, key, &(message, from_ns), &(message, to_ns));
        let found = self.requests.get(range).unwrap_or_default();
        found.iter().filter_map(|index| self.packet(*index))
    }

    /// Returns the answers with a PSN of a range that were sent from one time to another, both included, in
    /// their order.
    pub(super) fn answers(
        &self,
        (first, count): (u32, u32),
        (from_ns, to_ns): (u64, u64),
    ) -> Vec<(usize, &'a TracedPacket)> {
        let key = |packet: &TracedPacket| (psn_of(packet), packet.at_ns);
        let first = first & (PSNS - 1);
        let end = first.saturating_add(count.min(PSNS));
        let mut found = Vec::new();
        for psns in [first..end.min(PSNS), 0..end.saturating_sub(PSNS).min(first)] {
            let mut psn = psns.start;
            while psn < psns.end {
                // The next PSN that occurs.
                let at = self.range(&self.answers, key, &(psn, 0), &(psn, 0)).start;
                let Some((_, next)) = self.answers.get(at).and_then(|index| self.packet(*index)) else {
                    break;
                };
                psn = psn_of(next);
                if psn >= psns.end {
                    break;
                }
                let range = self.range(&self.answers, key, &(psn, from_ns), &(psn, to_ns));
                found.extend_from_slice(self.answers.get(range).unwrap_or_default());
                psn += 1;
            }
        }
        found.sort_unstable();
        found.into_iter().filter_map(|index| self.packet(index)).collect()
    }

    /// Returns the first message from an index on that was not over at a time.
    pub(super) fn first_open(&self, from: usize, at_ns: u64) -> Option<usize> {
        self.over_ns.first_above(from, at_ns)
    }

    /// Returns the messages before an index, among the last `reach`, from the first one that was not over at
    /// a time.
    pub(super) fn open_before(&self, number: usize, reach: usize, at_ns: u64) -> &'a [Message] {
        let first = self.first_open(number.saturating_sub(reach), at_ns).unwrap_or(number).min(number);
        count_steps(number - first);
        self.qp.messages.get(first..number).unwrap_or_default()
    }

    /// Returns the last message before an index that had a setback of its own packet at this time.
    pub(super) fn held_back(&self, before: usize, at_ns: u64) -> Option<usize> {
        let behind = self.setbacks.partition_point(|one| *one < (at_ns, before as u32));
        let (found_ns, found) = *self.setbacks.get(behind.checked_sub(1)?)?;
        (found_ns == at_ns).then_some(found as usize)
    }

    /// Counts RNR NAKs from one time to another, both included.
    pub(super) fn rnr_naks(&self, from_ns: u64, to_ns: u64) -> usize {
        let before = |limit_ns: u64| self.rnr_naks_ns.partition_point(|at_ns| *at_ns < limit_ns);
        before(to_ns.saturating_add(1)).saturating_sub(before(from_ns))
    }

    /// Returns the oldest receive request that had completed and was not polled at a time: when it completed,
    /// and when it was polled.
    pub(super) fn oldest_unpolled(&self, at_ns: u64) -> Option<(u64, Option<u64>)> {
        let oldest = self.received.get(self.polled_ns.first_above(0, at_ns)?)?;
        (oldest.0 <= at_ns).then_some(*oldest)
    }

    /// Returns the time at which the first receive request after a time was posted.
    pub(super) fn posted_after(&self, at_ns: u64) -> Option<u64> {
        self.posted_ns.get(self.posted_ns.partition_point(|posted_ns| *posted_ns <= at_ns)).copied()
    }

    /// Returns the last logged sentence from one time to another, both included.
    pub(super) fn last_logged(&self, from_ns: u64, to_ns: u64) -> Option<&'a str> {
        let moment = |index: &u32| self.qp.moments.get(*index as usize);
        let behind = self.logged.partition_point(|index| moment(index).is_some_and(|one| one.at_ns <= to_ns));
        let last = moment(self.logged.get(behind.checked_sub(1)?)?)?;
        (last.at_ns >= from_ns).then_some(last.text.as_str())
    }

    /// Returns the state changes before a time, the last one first: the time, and a description.
    pub(super) fn states_before(&self, limit_ns: u64) -> impl Iterator<Item = (u64, &'a str)> {
        let moment = |index: &u32| self.qp.moments.get(*index as usize);
        let behind =
            self.states.partition_point(|index| moment(index).is_some_and(|one| one.at_ns < limit_ns));
        let found = self.states.get(..behind).unwrap_or_default().iter().rev();
        found.filter_map(move |index| moment(index).map(|one| (one.at_ns, one.text.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_look_at_all_of_them_finds() {
        for len in 0..20_usize {
            let values: Vec<u64> = (0..len).map(|index| (index as u64 * 7 + len as u64) % 11).collect();
            let tree = MaxTree::of(values.iter().copied());
            for from in 0..len + 2 {
                for limit in 0..12 {
                    let wanted = (from..len).find(|index| values[*index] > limit);
                    assert_eq!(tree.first_above(from, limit), wanted, "{values:?} {from} {limit}");
                }
                for to in from..len + 2 {
                    let wanted = values.iter().take(to).skip(from).max().copied().unwrap_or(0);
                    assert_eq!(tree.greatest(from..to), wanted, "{values:?} {from}..{to}");
                }
            }
        }
    }
}

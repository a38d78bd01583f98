//! Packets on their way through the switches, and those at the end of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use pumice_transport::host::Counter;
use pumice_transport::path::Path;

use super::ports::{PortQueueFull, Ports, Route};
use crate::link::{DropTally, HeldBatch, RELEASE_ATTEMPTS, send};
use pumice_model::port::Port;

/// Congestion experienced: both ECN bits.
const ECN_CE: u8 = 0b11;
/// Largest number of steps of one call. The rest is left for the next one.
const MAX_STEPS: usize = 1 << 16;
/// Longest time that a packet waits for a pause to end. Then it goes on, because the words may be invalid.
const MAX_PAUSE_WAIT_NS: u64 = 1_000_000_000;

/// The common properties of the packets of a batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) path: Path,
    pub(super) segment_bytes: usize,
    pub(super) has_icrc: bool,
    pub(super) route: Route,
    /// Exit to which its packets leave: those with one number stay in order.
    pub(super) exit: usize,
    /// Number of the batch among those of the port.
    pub(super) number: u64,
}

/// A packet on its way.
#[derive(Debug)]
pub(super) struct TransitPacket {
    /// Time at which it comes to the next queue, or to the end.
    pub(super) at_ns: u64,
    /// Number of links that it has passed.
    pub(super) stage: usize,
    /// Index of the packet in its batch.
    pub(super) index: usize,
    /// Length on a link, in bytes.
    pub(super) wire_bytes: u64,
    pub(super) is_marked: bool,
    /// Time at which a pause first made it wait.
    pub(super) waits_since_ns: Option<u64>,
    /// The packet is the first one of a link that a pause holds up.
    pub(super) is_head: bool,
    pub(super) batch: Arc<Batch>,
    pub(super) bytes: Vec<u8>,
}

/// A packet and its next step; ordered by time, then by the order of sending.
#[derive(Debug)]
struct Planned {
    sequence: u64,
    packet_in_transit: TransitPacket,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.packet_in_transit.at_ns, self.sequence).cmp(&(other.packet_in_transit.at_ns, other.sequence))
    }
}

/// The packets that leave to one host.
#[derive(Debug, Default)]
struct Exit {
    held: VecDeque<HeldBatch<Path>>,
    /// Batch of the last packet, and its index there.
    last: Option<(u64, usize)>,
    last_ns: u64,
    /// Time before which the port below takes nothing for it.
    retry_at_ns: u64,
}

/// All packets that this process holds.
#[derive(Debug, Default)]
pub(super) struct Transit {
    planned: BinaryHeap<Reverse<Planned>>,
    sequence: u64,
    exits: BTreeMap<usize, Exit>,
    held_bytes: usize,
    /// Packets that wait behind the first packet of each link that the switch at its end has paused.
    paused: BTreeMap<usize, VecDeque<Planned>>,
    /// The last call has left steps for the next one.
    leaves_some: bool,
}

impl Transit {
    /// Returns the length of all packets that are held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Starts a packet on its way; `at_ns` is when it comes to the next queue.
    pub(super) fn enqueue(&mut self, packet_in_transit: TransitPacket) {
        self.held_bytes += packet_in_transit.bytes.len();
        let sequence = self.sequence;
        self.sequence += 1;
        self.planned.push(Reverse(Planned { sequence, packet_in_transit }));
    }

    /// Moves the packets on that come to a queue, or to the end, by `until_ns`.
    pub(super) fn go_on(&mut self, until_ns: u64, ports: &Ports, tally: &DropTally) {
        self.leaves_some = false;
        for _ in 0..MAX_STEPS {
            if self.planned.peek().is_none_or(|Reverse(first)| first.packet_in_transit.at_ns > until_ns) {
                return;
            }
            let Some(Reverse(Planned { sequence, packet_in_transit })) = self.planned.pop() else { return };
            self.step(sequence, packet_in_transit, ports, tally);
        }
        self.leaves_some = true;
    }

    fn step(
        &mut self,
        sequence: u64,
        mut packet_in_transit: TransitPacket,
        ports: &Ports,
        tally: &DropTally,
    ) {
        let route = packet_in_transit.batch.route;
        let Some(link) = route.link(packet_in_transit.stage) else { return self.exit(packet_in_transit) };
        let at_ns = packet_in_transit.at_ns;
        let arrival_link = packet_in_transit.stage.checked_sub(1).and_then(|before| route.link(before));
        if !packet_in_transit.is_head
            && let Some(behind) = arrival_link.and_then(|by| self.paused.get_mut(&by))
        {
            // Packets that one link brings stay in order, even those for other hosts.
            packet_in_transit.waits_since_ns = Some(at_ns);
            behind.push_back(Planned { sequence, packet_in_transit });
            return;
        }
        let waited_ns = packet_in_transit.waits_since_ns.map_or(0, |since_ns| at_ns.saturating_sub(since_ns));
        let may_wait = ports.pause().is_some() && waited_ns < MAX_PAUSE_WAIT_NS;
        let is_capable = !packet_in_transit.is_marked
            && matches!(packet_in_transit.batch.path.traffic_class & ECN_CE, 1 | 2);
        let always = ports.pause().is_some() && !may_wait;
        match ports.join(link, at_ns, packet_in_transit.wire_bytes, is_capable, always) {
            Ok(joined) => {
                if let Some(by) = arrival_link.filter(|_| packet_in_transit.is_head) {
                    self.resume(by, at_ns, ports);
                }
                tally.add(Counter::LinkMarked, u64::from(joined.is_marked));
                tally.add(Counter::LinkQueued, u64::from(joined.waits));
                packet_in_transit.is_marked |= joined.is_marked;
                packet_in_transit.at_ns = joined.arrives_ns;
                packet_in_transit.stage += 1;
                (packet_in_transit.waits_since_ns, packet_in_transit.is_head) = (None, false);
                self.planned.push(Reverse(Planned { sequence, packet_in_transit }));
            }
            Err(PortQueueFull { drained_ns }) if may_wait => {
                if let Some(by) = arrival_link {
                    ports.pause_until(by, drained_ns);
                    self.paused.entry(by).or_default();
                }
                packet_in_transit.waits_since_ns.get_or_insert(at_ns);
                (packet_in_transit.at_ns, packet_in_transit.is_head) = (drained_ns, true);
                self.planned.push(Reverse(Planned { sequence, packet_in_transit }));
            }
            Err(_) => {
                ports.count_dropped(link);
                tally.add(Counter::LinkDropped, 1);
                self.held_bytes -= packet_in_transit.bytes.len();
            }
        }
    }

    /// Resumes a link after the first packet that was paused has gone on: the next one comes when the link
    /// has sent it.
    fn resume(&mut self, link: usize, now_ns: u64, ports: &Ports) {
        let Some(behind) = self.paused.get_mut(&link) else { return };
        let Some(Planned { sequence, mut packet_in_transit }) = behind.pop_front() else {
            self.paused.remove(&link);
            return;
        };
        let comes_ns = now_ns.saturating_add(ports.transmission_ns(link, packet_in_transit.wire_bytes));
        (packet_in_transit.at_ns, packet_in_transit.is_head) = (packet_in_transit.at_ns.max(comes_ns), true);
        self.planned.push(Reverse(Planned { sequence, packet_in_transit }));
    }

    /// Handles a packet that has passed all links.
    fn exit(&mut self, packet_in_transit: TransitPacket) {
        let TransitPacket { at_ns, index, is_marked, batch, bytes, .. } = packet_in_transit;
        let exit = self.exits.entry(batch.exit).or_default();
        exit.last_ns = exit.last_ns.max(at_ns);
        let mut path = batch.path.clone();
        path.traffic_class |= if is_marked { ECN_CE } else { 0 };
        let follows = index.checked_sub(1).is_some_and(|before| exit.last == Some((batch.number, before)));
        exit.last = Some((batch.number, index));
        match exit.held.back_mut() {
            Some(held) if follows && held.common == path => held.push(&bytes, exit.last_ns),
            _ => {
                let mut held = HeldBatch::new(path, batch.segment_bytes, batch.has_icrc, index);
                held.push(&bytes, exit.last_ns);
                exit.held.push_back(held);
            }
        }
    }

    /// Sends the packets that are due, as far as the port below takes them.
    pub(super) fn send_due(&mut self, now_ns: u64, grain_ns: u64, below: &mut dyn Port, tally: &DropTally) {
        let held_bytes = &mut self.held_bytes;
        self.exits.retain(|_, exit| {
            exit.send_due(now_ns, grain_ns, below, tally, held_bytes);
            !exit.held.is_empty()
        });
    }

    /// Sends everything at once. Packets that the port below does not take are lost.
    pub(super) fn release(&mut self, now_ns: u64, below: &mut dyn Port, tally: &DropTally) {
        let mut planned: Vec<Planned> =
            std::mem::take(&mut self.planned).into_iter().map(|Reverse(planned)| planned).collect();
        planned.extend(std::mem::take(&mut self.paused).into_values().flatten());
        // The packets of a flow pass all queues in the order in which they set out.
        planned.sort_unstable_by_key(|planned| planned.sequence);
        for Planned { mut packet_in_transit, .. } in planned {
            packet_in_transit.at_ns = now_ns;
            self.exit(packet_in_transit);
        }
        let mut attempts = RELEASE_ATTEMPTS;
        for exit in self.exits.values_mut() {
            while let Some(first) = exit.held.front_mut()
                && attempts > 0
            {
                let packets = first.packets();
                match send(first, packets, now_ns, below, tally) {
                    Ok(()) => exit.forget_first_if_over(&mut self.held_bytes),
                    Err(_) => attempts -= 1,
                }
            }
        }
        self.exits.clear();
        self.held_bytes = 0;
    }

    /// Returns when there is something to do.
    pub(super) fn next_ns(&self, grain_ns: u64) -> Option<u64> {
        if self.leaves_some {
            return Some(0);
        }
        let step_ns =
            self.planned.peek().map(|Reverse(first)| first.packet_in_transit.at_ns.saturating_sub(grain_ns));
        let due_ns = self.exits.values().filter_map(|exit| exit.next_ns(grain_ns)).min();
        [step_ns, due_ns].into_iter().flatten().min()
    }
}

impl Exit {
    fn send_due(
        &mut self,
        now_ns: u64,
        grain_ns: u64,
        below: &mut dyn Port,
        tally: &DropTally,
        held_bytes: &mut usize,
    ) {
        if self.retry_at_ns > now_ns {
            return;
        }
        while let Some(first) = self.held.front_mut() {
            let packets = first.due(now_ns, grain_ns);
            if packets == 0 {
                return;
            }
            match send(first, packets, now_ns, below, tally) {
                Ok(()) => self.forget_first_if_over(held_bytes),
                Err(retry_ns) => {
                    self.retry_at_ns = now_ns.saturating_add(retry_ns);
                    return;
                }
            }
        }
    }

    fn forget_first_if_over(&mut self, held_bytes: &mut usize) {
        if self.held.front().is_some_and(HeldBatch::is_over)
            && let Some(over) = self.held.pop_front()
        {
            *held_bytes = held_bytes.saturating_sub(over.len_bytes());
            // Packets of the same batch that come later begin another one.
            if self.held.is_empty() {
                self.last = None;
            }
        }
    }

    fn next_ns(&self, grain_ns: u64) -> Option<u64> {
        self.held.front().map(|first| first.due_ns(grain_ns).max(self.retry_at_ns))
    }
}

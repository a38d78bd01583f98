//! Packets on their way through the switches, and those at the end of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use pumice_transport::host::Counter;
use pumice_transport::path::Path;

use super::ports::{Full, Ports, Route};
use crate::Port;
use crate::link::{Held, RELEASE_ATTEMPTS, Tally, send};

/// Congestion experienced: both ECN bits.
const ECN_CE: u8 = 0b11;
/// Steps that one call takes at most. What is left is for the next one.
const MOST_STEPS: usize = 1 << 16;
/// How long a packet waits for a pause to end. Then it goes on: the words may be nonsense.
const MOST_WAIT_NS: u64 = 1_000_000_000;

/// What the packets of a batch have in common.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) path: Path,
    pub(super) segment_bytes: usize,
    pub(super) has_icrc: bool,
    pub(super) route: Route,
    /// Where its packets leave to: those with one number stay in order.
    pub(super) exit: usize,
    /// Which batch of the port it is.
    pub(super) number: u64,
}

/// A packet on its way.
#[derive(Debug)]
pub(super) struct Traveller {
    /// When it comes to the next queue, or to the end.
    pub(super) at_ns: u64,
    /// Links that it has passed.
    pub(super) stage: usize,
    /// Its index in the batch.
    pub(super) index: usize,
    /// Bytes on a link.
    pub(super) wire_bytes: u64,
    pub(super) is_marked: bool,
    /// When a pause made it wait first.
    pub(super) waits_since_ns: Option<u64>,
    /// It is the first one of a link that a pause holds up.
    pub(super) is_head: bool,
    pub(super) batch: Arc<Batch>,
    pub(super) bytes: Vec<u8>,
}

/// Ordered by time, then by the order of sending.
#[derive(Debug)]
struct Planned {
    sequence: u64,
    traveller: Traveller,
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
        (self.traveller.at_ns, self.sequence).cmp(&(other.traveller.at_ns, other.sequence))
    }
}

/// What leaves to one host.
#[derive(Debug, Default)]
struct Exit {
    held: VecDeque<Held<Path>>,
    /// The batch of the last packet, and its index there.
    last: Option<(u64, usize)>,
    last_ns: u64,
    /// The port below takes nothing for it before.
    retry_at_ns: u64,
}

/// All packets that this process holds.
#[derive(Debug, Default)]
pub(super) struct Travel {
    planned: BinaryHeap<Reverse<Planned>>,
    sequence: u64,
    exits: BTreeMap<usize, Exit>,
    held_bytes: usize,
    /// What waits behind the first packet of each link that the switch at its end has paused.
    paused: BTreeMap<usize, VecDeque<Planned>>,
    /// The last call has left steps for the next one.
    leaves_some: bool,
}

impl Travel {
    /// Bytes of all packets that are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A packet sets out; `at_ns` is when it comes to the next queue.
    pub(super) fn set_out(&mut self, traveller: Traveller) {
        self.held_bytes += traveller.bytes.len();
        let sequence = self.sequence;
        self.sequence += 1;
        self.planned.push(Reverse(Planned { sequence, traveller }));
    }

    /// Takes packets on that come to a queue, or to the end, by `until_ns`.
    pub(super) fn go_on(&mut self, until_ns: u64, ports: &Ports, tally: &Tally) {
        self.leaves_some = false;
        for _ in 0..MOST_STEPS {
            if self.planned.peek().is_none_or(|Reverse(first)| first.traveller.at_ns > until_ns) {
                return;
            }
            let Some(Reverse(Planned { sequence, traveller })) = self.planned.pop() else { return };
            self.step(sequence, traveller, ports, tally);
        }
        self.leaves_some = true;
    }

    fn step(&mut self, sequence: u64, mut traveller: Traveller, ports: &Ports, tally: &Tally) {
        let route = traveller.batch.route;
        let Some(link) = route.link(traveller.stage) else { return self.exit(traveller) };
        let at_ns = traveller.at_ns;
        let came_by = traveller.stage.checked_sub(1).and_then(|before| route.link(before));
        if !traveller.is_head
            && let Some(behind) = came_by.and_then(|by| self.paused.get_mut(&by))
        {
            // What one link brings stays in order, also what is for other hosts.
            traveller.waits_since_ns = Some(at_ns);
            behind.push_back(Planned { sequence, traveller });
            return;
        }
        let waited_ns = traveller.waits_since_ns.map_or(0, |since_ns| at_ns.saturating_sub(since_ns));
        let may_wait = ports.pause().is_some() && waited_ns < MOST_WAIT_NS;
        let is_capable = !traveller.is_marked && matches!(traveller.batch.path.traffic_class & ECN_CE, 1 | 2);
        let always = ports.pause().is_some() && !may_wait;
        match ports.join(link, at_ns, traveller.wire_bytes, is_capable, always) {
            Ok(joined) => {
                if let Some(by) = came_by.filter(|_| traveller.is_head) {
                    self.resume(by, at_ns, ports);
                }
                tally.add(Counter::LinkMarked, u64::from(joined.is_marked));
                tally.add(Counter::LinkQueued, u64::from(joined.waits));
                traveller.is_marked |= joined.is_marked;
                traveller.at_ns = joined.arrives_ns;
                traveller.stage += 1;
                (traveller.waits_since_ns, traveller.is_head) = (None, false);
                self.planned.push(Reverse(Planned { sequence, traveller }));
            }
            Err(Full { drained_ns }) if may_wait => {
                if let Some(by) = came_by {
                    ports.pause_until(by, drained_ns);
                    self.paused.entry(by).or_default();
                }
                traveller.waits_since_ns.get_or_insert(at_ns);
                (traveller.at_ns, traveller.is_head) = (drained_ns, true);
                self.planned.push(Reverse(Planned { sequence, traveller }));
            }
            Err(_) => {
                ports.count_dropped(link);
                tally.add(Counter::LinkDropped, 1);
                self.held_bytes -= traveller.bytes.len();
            }
        }
    }

    /// The first packet of a link that was paused has gone on: the next one comes when the link has sent it.
    fn resume(&mut self, link: usize, now_ns: u64, ports: &Ports) {
        let Some(behind) = self.paused.get_mut(&link) else { return };
        let Some(Planned { sequence, mut traveller }) = behind.pop_front() else {
            self.paused.remove(&link);
            return;
        };
        let comes_ns = now_ns.saturating_add(ports.transmission_ns(link, traveller.wire_bytes));
        (traveller.at_ns, traveller.is_head) = (traveller.at_ns.max(comes_ns), true);
        self.planned.push(Reverse(Planned { sequence, traveller }));
    }

    /// A packet has passed all links.
    fn exit(&mut self, traveller: Traveller) {
        let Traveller { at_ns, index, is_marked, batch, bytes, .. } = traveller;
        let exit = self.exits.entry(batch.exit).or_default();
        exit.last_ns = exit.last_ns.max(at_ns);
        let mut path = batch.path.clone();
        path.traffic_class |= if is_marked { ECN_CE } else { 0 };
        let follows = index.checked_sub(1).is_some_and(|before| exit.last == Some((batch.number, before)));
        exit.last = Some((batch.number, index));
        match exit.held.back_mut() {
            Some(held) if follows && held.common == path => held.push(&bytes, exit.last_ns),
            _ => {
                let mut held = Held::new(path, batch.segment_bytes, batch.has_icrc, index);
                held.push(&bytes, exit.last_ns);
                exit.held.push_back(held);
            }
        }
    }

    /// Sends what is due, as far as the port below takes it.
    pub(super) fn send_due(&mut self, now_ns: u64, grain_ns: u64, below: &mut dyn Port, tally: &Tally) {
        let held_bytes = &mut self.held_bytes;
        self.exits.retain(|_, exit| {
            exit.send_due(now_ns, grain_ns, below, tally, held_bytes);
            !exit.held.is_empty()
        });
    }

    /// Sends everything at once. What the port below does not take is lost.
    pub(super) fn release(&mut self, now_ns: u64, below: &mut dyn Port, tally: &Tally) {
        let mut planned: Vec<Planned> =
            std::mem::take(&mut self.planned).into_iter().map(|Reverse(planned)| planned).collect();
        planned.extend(std::mem::take(&mut self.paused).into_values().flatten());
        // The packets of a flow pass all queues in the order in which they set out.
        planned.sort_unstable_by_key(|planned| planned.sequence);
        for Planned { mut traveller, .. } in planned {
            traveller.at_ns = now_ns;
            self.exit(traveller);
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

    /// When there is something to do.
    pub(super) fn next_ns(&self, grain_ns: u64) -> Option<u64> {
        if self.leaves_some {
            return Some(0);
        }
        let step_ns =
            self.planned.peek().map(|Reverse(first)| first.traveller.at_ns.saturating_sub(grain_ns));
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
        tally: &Tally,
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
        if self.held.front().is_some_and(Held::is_over)
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

//! The ports of all switches: which way a packet takes, and how it joins a queue.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_ground::clock::Clock;
use pumice_transport::path::Flow;

use super::words::{SwitchWords, Word, said, word};
use crate::link::{GRAIN_NS, QUEUE_BYTES};
use crate::topology::{Layout, LinkSpec, QueueReport, SwitchPauses, Topology, TopologyNode};

/// How often a word that other processes change meanwhile is tried. Then the packet passes as if it had won.
const TRIES: usize = 64;
/// What an adapter's queue takes beyond its bound: a batch of each of sixteen processes that share it, all at
/// one moment.
const BATCHES_BYTES: u64 = 1 << 20;
/// What a time in a word may be later than a process can have meant, in ns.
const SLACK_NS: u64 = 1_000_000;
/// Links on a way at most: to a leaf, to a spine, to a leaf, to a host.
pub(super) const MAX_LINKS: usize = 4;

/// The links that a packet passes, by number, the sender's first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Route {
    links: [usize; MAX_LINKS],
    count: usize,
}

impl Route {
    pub(super) fn link(&self, stage: usize) -> Option<usize> {
        self.links.get(..self.count)?.get(stage).copied()
    }

    fn push(&mut self, link: usize) {
        if let Some(slot) = self.links.get_mut(self.count) {
            *slot = link;
            self.count += 1;
        }
    }
}

/// How a packet joined a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joined {
    /// It is at the other end of the link.
    pub(super) arrives_ns: u64,
    /// Others were in front of it.
    pub(super) waits: bool,
    pub(super) is_marked: bool,
}

/// The queue takes no packet now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// When it is short enough for a sender that was paused, if no process sends more.
    pub(super) drained_ns: u64,
}

/// All ports, as one process sees them. Times are those of the process's clock.
pub(super) struct Ports {
    topology: Arc<Topology>,
    layout: Layout,
    links: Vec<LinkSpec>,
    /// How far from now a port can be busy at most.
    bounds_ns: Vec<u64>,
    words: Arc<dyn SwitchWords>,
    clock: Clock,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

impl Ports {
    pub(super) fn new(topology: Arc<Topology>, words: Arc<dyn SwitchWords>, clock: Clock) -> Ports {
        let layout = Layout::of(&topology);
        let links = layout.links(&topology);
        let bounds_ns = bounds_ns(&links, topology.queues.pause.is_some());
        Ports { topology, layout, links, bounds_ns, words, clock }
    }

    pub(super) fn pause(&self) -> Option<SwitchPauses> {
        self.topology.queues.pause
    }

    /// The index of the host that has an address.
    pub(super) fn host_of(&self, address: IpAddr) -> Option<usize> {
        self.topology.host_of(address)
    }

    /// The way of a flow from one host to another.
    pub(super) fn route(&self, from: usize, to: usize, flow: &Flow) -> Route {
        let mut route = Route::default();
        route.push(Layout::link_of(from));
        let mut at = TopologyNode::Leaf(self.layout.leaf_of(from));
        for _ in 1..MAX_LINKS {
            let Some(link) = self.layout.next(at, to, flow) else { break };
            route.push(link);
            let Some(spec) = self.links.get(link) else { break };
            at = spec.head;
        }
        route
    }

    /// How long a link takes to send so many bytes.
    pub(super) fn transmission_ns(&self, port: usize, bytes: u64) -> u64 {
        self.links.get(port).map_or(0, |spec| spec.direction.transmission_ns(bytes))
    }

    /// Bytes that wait at a port or are being sent.
    pub(super) fn backlog_bytes(&self, port: usize, at_ns: u64) -> u64 {
        let Some(spec) = self.links.get(port) else { return 0 };
        let busy_ns = self.believed(port, said(self.words.words(), port, Word::BusyUntil));
        spec.direction.bytes_in(busy_ns.saturating_sub(self.absolute(at_ns)))
    }

    /// When at most so many bytes are left at a port, if no process sends more.
    pub(super) fn drained_ns(&self, port: usize, bytes: u64) -> u64 {
        let Some(spec) = self.links.get(port) else { return 0 };
        let busy_ns = self.believed(port, said(self.words.words(), port, Word::BusyUntil));
        self.local(busy_ns).saturating_sub(spec.direction.transmission_floor_ns(bytes))
    }

    /// A packet of so many bytes on the wire comes to a queue. It comes no earlier than the last one did:
    /// what a process has taken late is late. `always`: whether there is room or not.
    pub(super) fn join(
        &self,
        port: usize,
        came_ns: u64,
        bytes: u64,
        is_capable: bool,
        always: bool,
    ) -> Result<Joined, Full> {
        let Some(spec) = self.links.get(port) else {
            return Ok(Joined { arrives_ns: came_ns, waits: false, is_marked: false });
        };
        let words = self.words.words();
        let (busy, last) = (word(words, port, Word::BusyUntil), word(words, port, Word::LastCame));
        let at_ns = self.absolute(came_ns).max(self.believed_or_reset(port, last));
        last.fetch_max(at_ns, Ordering::Relaxed);
        let takes_ns = spec.direction.transmission_ns(bytes);
        let closed = word(words, port, Word::ClosedUntil);
        if !always && self.pause().is_some() {
            // All senders wait until the queue is short, or the first one that finds room would keep it.
            let closed_until_ns = self.believed_or_reset(port, closed);
            if closed_until_ns > at_ns {
                return Err(Full { drained_ns: self.local(closed_until_ns) });
            }
        }
        let (mut departs_ns, mut backlog) = (at_ns, 0);
        for _ in 0..TRIES {
            let seen = busy.load(Ordering::Relaxed);
            let busy_ns = self.believed(port, seen);
            // What is being sent counts as a whole packet until its last bit has left, as in switches.
            let left_bytes = spec.direction.bytes_in(busy_ns.saturating_sub(at_ns));
            backlog = left_bytes.div_ceil(bytes.max(1)).saturating_mul(bytes);
            if !always && !self.has_room(port, spec, backlog, bytes, at_ns) {
                let keeps = self.pause().map_or(0, |pause| pause.xon_bytes);
                let drained_ns = busy_ns.saturating_sub(spec.direction.transmission_floor_ns(keeps));
                let drained_ns = drained_ns.max(at_ns.saturating_add(1));
                if self.pause().is_some() {
                    closed.fetch_max(drained_ns, Ordering::Relaxed);
                }
                return Err(Full { drained_ns: self.local(drained_ns) });
            }
            departs_ns = busy_ns.max(at_ns).saturating_add(takes_ns);
            if busy.compare_exchange_weak(seen, departs_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        let ordinal = self.add(port, Word::Packets, 1);
        self.add(port, Word::Bytes, bytes);
        let longest = word(words, port, Word::MostBytes);
        longest.fetch_max(backlog.saturating_add(bytes), Ordering::Relaxed);
        let is_marked = is_capable && spec.direction.marks(backlog, ordinal);
        self.add(port, Word::Marked, u64::from(is_marked));
        let arrives_ns = self.local(departs_ns.saturating_add(spec.direction.delay_ns));
        Ok(Joined { arrives_ns, waits: backlog > 0, is_marked })
    }

    /// The port sends nothing before: the switch at the other end of its link has asked it to stop.
    pub(super) fn pause_until(&self, port: usize, until_ns: u64) {
        let busy = word(self.words.words(), port, Word::BusyUntil);
        busy.fetch_max(self.absolute(until_ns), Ordering::Relaxed);
        self.add(port, Word::Pauses, 1);
    }

    pub(super) fn count_dropped(&self, port: usize) {
        self.add(port, Word::Dropped, 1);
    }

    /// What was counted before.
    fn add(&self, port: usize, which: Word, amount: u64) -> u64 {
        let word = word(self.words.words(), port, which);
        if amount == 0 { 0 } else { word.fetch_add(amount, Ordering::Relaxed) }
    }

    fn has_room(&self, port: usize, spec: &LinkSpec, backlog: u64, bytes: u64, at_ns: u64) -> bool {
        let longest = self.pause().map_or(u64::MAX, |pause| pause.xoff_bytes);
        backlog.saturating_add(bytes) <= spec.queue_bytes
            && backlog <= longest
            && self.topology.queues.buffer_bytes.is_none_or(|buffer_bytes| {
                let mates = (0..self.links.len()).filter(|other| {
                    *other != port && self.links.get(*other).is_some_and(|other| other.tail == spec.tail)
                });
                let others: u64 = mates.map(|mate| self.backlog_bytes(mate, self.local(at_ns))).sum();
                others.saturating_add(backlog).saturating_add(bytes) <= buffer_bytes
            })
    }

    /// A time in a word of a port, or 0 if no process can have meant it: then the port is idle.
    fn believed(&self, port: usize, said_ns: u64) -> u64 {
        let bound_ns = self.bounds_ns.get(port).copied().unwrap_or(0);
        // The clock is read after the word: what another process has written is not later than this allows.
        let latest_ns = self.absolute(self.clock.now_ns()).saturating_add(bound_ns);
        if said_ns > latest_ns { 0 } else { said_ns }
    }

    /// The time that a word says, which becomes 0 if no process can have meant it.
    fn believed_or_reset(&self, port: usize, word: &AtomicU64) -> u64 {
        let said_ns = word.load(Ordering::Relaxed);
        let believed_ns = self.believed(port, said_ns);
        if believed_ns != said_ns {
            word.store(0, Ordering::Relaxed);
        }
        believed_ns
    }

    fn absolute(&self, local_ns: u64) -> u64 {
        local_ns.saturating_add(self.clock.origin_ns())
    }

    fn local(&self, absolute_ns: u64) -> u64 {
        absolute_ns.saturating_sub(self.clock.origin_ns())
    }

    /// What all ports hold, and what happened at them.
    pub(super) fn reports(&self, now_ns: u64) -> Vec<QueueReport> {
        let words = self.words.words();
        let report = |(port, spec): (usize, &LinkSpec)| {
            let bytes = self.backlog_bytes(port, now_ns);
            QueueReport {
                name: spec.name(&self.topology),
                packets: said(words, port, Word::Packets),
                bytes,
                most_bytes: said(words, port, Word::MostBytes),
                sent_bytes: said(words, port, Word::Bytes).saturating_sub(bytes),
                marked: said(words, port, Word::Marked),
                dropped: said(words, port, Word::Dropped),
                pauses: said(words, port, Word::Pauses),
            }
        };
        self.links.iter().enumerate().map(report).collect()
    }
}

/// How far from now each port can be busy: a full queue, and if it can be paused, as long as one behind it.
fn bounds_ns(links: &[LinkSpec], pauses: bool) -> Vec<u64> {
    let own = |spec: &LinkSpec| {
        let room = match spec.tail {
            TopologyNode::Host(_) => QUEUE_BYTES + BATCHES_BYTES,
            _ => spec.queue_bytes,
        };
        spec.direction.transmission_ns(room).saturating_add(GRAIN_NS + SLACK_NS)
    };
    let mut bounds: Vec<u64> = links.iter().map(own).collect();
    // A pause moves at most so far from the receiver to the sender.
    for _ in 1..if pauses { MAX_LINKS } else { 1 } {
        let longest_at = |node: TopologyNode, bounds: &[u64]| {
            links
                .iter()
                .zip(bounds)
                .filter(|(spec, _)| spec.tail == node)
                .map(|(_, ns)| *ns)
                .max()
                .unwrap_or(0)
        };
        let behind: Vec<u64> = links.iter().map(|spec| longest_at(spec.head, &bounds)).collect();
        bounds = links.iter().zip(behind).map(|(spec, ns)| own(spec).saturating_add(ns)).collect();
    }
    bounds
}

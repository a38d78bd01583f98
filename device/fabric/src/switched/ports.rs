//! The ports of all switches: the route of a packet, and how it joins a queue.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_platform::clock::Clock;
use pumice_transport::path::Flow;

use super::words::{PortWord, SwitchWords, load_word, word};
use crate::link::{GRAIN_NS, QUEUE_BYTES};
use pumice_model::network::topology::{Layout, LinkSpec, QueueReport, SwitchPauses, Topology, TopologyNode};

/// Number of attempts to change a word that other processes change meanwhile. Then the packet passes as if an
/// attempt had succeeded.
const TRIES: usize = 64;
/// Number of bytes that an adapter's queue accepts beyond its bound: a batch of each of sixteen processes
/// that share it, all at one moment.
const BATCHES_BYTES: u64 = 1 << 20;
/// Largest excess of a time in a word over what a process can have meant, in ns.
const SLACK_NS: u64 = 1_000_000;
/// Largest number of links on a route: to a leaf, to a spine, to a core, and back to a host.
pub(super) const MAX_LINKS: usize = 6;

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

/// The result of joining a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuePosition {
    /// Time at which the packet is at the other end of the link.
    pub(super) arrives_ns: u64,
    /// Other packets were in front of it.
    pub(super) waits: bool,
    pub(super) is_marked: bool,
}

/// The error that the queue takes no packet now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortQueueFull {
    /// Time at which the queue is short enough for a sender that was paused, if no process sends more.
    pub(super) drained_ns: u64,
}

/// All ports, as one process sees them. Times are those of the process's clock.
pub(super) struct Ports {
    topology: Arc<Topology>,
    layout: Layout,
    links: Vec<LinkSpec>,
    /// Longest time from now for which each port can be busy.
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

    /// Returns the index of the host that has an address.
    pub(super) fn host_of(&self, address: IpAddr) -> Option<usize> {
        self.topology.host_of(address)
    }

    /// Returns the route of a flow from one host to another.
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

    /// Returns how long a link takes to send this number of bytes.
    pub(super) fn transmission_ns(&self, port: usize, bytes: u64) -> u64 {
        self.links.get(port).map_or(0, |spec| spec.direction.transmission_ns(bytes))
    }

    /// Returns how many bytes wait at a port or are being sent.
    pub(super) fn backlog_bytes(&self, port: usize, at_ns: u64) -> u64 {
        let Some(spec) = self.links.get(port) else { return 0 };
        let busy_ns = self.plausible(port, load_word(self.words.words(), port, PortWord::BusyUntil));
        spec.direction.bytes_in(busy_ns.saturating_sub(self.absolute(at_ns)))
    }

    /// Returns when at most this number of bytes are left at a port, if no process sends more.
    pub(super) fn drained_ns(&self, port: usize, bytes: u64) -> u64 {
        let Some(spec) = self.links.get(port) else { return 0 };
        let busy_ns = self.plausible(port, load_word(self.words.words(), port, PortWord::BusyUntil));
        self.local(busy_ns).saturating_sub(spec.direction.transmission_floor_ns(bytes))
    }

    /// Adds a packet of this length on the wire to a queue. It comes no earlier than the last one did: a
    /// packet that a process has taken late is late. With `always` it joins whether there is room or not.
    pub(super) fn join(
        &self,
        port: usize,
        came_ns: u64,
        bytes: u64,
        is_capable: bool,
        always: bool,
    ) -> Result<QueuePosition, PortQueueFull> {
        let Some(spec) = self.links.get(port) else {
            return Ok(QueuePosition { arrives_ns: came_ns, waits: false, is_marked: false });
        };
        let words = self.words.words();
        let (busy, last) = (word(words, port, PortWord::BusyUntil), word(words, port, PortWord::LastArrival));
        let at_ns = self.absolute(came_ns).max(self.plausible_or_reset(port, last));
        last.fetch_max(at_ns, Ordering::Relaxed);
        let takes_ns = spec.direction.transmission_ns(bytes);
        let closed = word(words, port, PortWord::ClosedUntil);
        if !always && self.pause().is_some() {
            // All senders wait until the queue is short, or the first one that finds room would keep it.
            let closed_until_ns = self.plausible_or_reset(port, closed);
            if closed_until_ns > at_ns {
                return Err(PortQueueFull { drained_ns: self.local(closed_until_ns) });
            }
        }
        let (mut departs_ns, mut backlog) = (at_ns, 0);
        for _ in 0..TRIES {
            let seen = busy.load(Ordering::Relaxed);
            let busy_ns = self.plausible(port, seen);
            // A packet that is being sent counts as a whole until its last bit has left, as in switches.
            let left_bytes = spec.direction.bytes_in(busy_ns.saturating_sub(at_ns));
            backlog = left_bytes.div_ceil(bytes.max(1)).saturating_mul(bytes);
            if !always && !self.has_room(port, spec, backlog, bytes, at_ns) {
                let keeps = self.pause().map_or(0, |pause| pause.xon_bytes);
                let drained_ns = busy_ns.saturating_sub(spec.direction.transmission_floor_ns(keeps));
                let drained_ns = drained_ns.max(at_ns.saturating_add(1));
                if self.pause().is_some() {
                    closed.fetch_max(drained_ns, Ordering::Relaxed);
                }
                return Err(PortQueueFull { drained_ns: self.local(drained_ns) });
            }
            departs_ns = busy_ns.max(at_ns).saturating_add(takes_ns);
            if busy.compare_exchange_weak(seen, departs_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        let ordinal = self.add(port, PortWord::Packets, 1);
        self.add(port, PortWord::Bytes, bytes);
        let longest = word(words, port, PortWord::MaxBytes);
        longest.fetch_max(backlog.saturating_add(bytes), Ordering::Relaxed);
        let is_marked = is_capable && spec.direction.marks(backlog, ordinal);
        self.add(port, PortWord::Marked, u64::from(is_marked));
        let arrives_ns = self.local(departs_ns.saturating_add(spec.direction.delay_ns));
        Ok(QueuePosition { arrives_ns, waits: backlog > 0, is_marked })
    }

    /// Pauses the port, which sends nothing before this time: the switch at the other end of its link has
    /// asked it to stop.
    pub(super) fn pause_until(&self, port: usize, until_ns: u64) {
        let busy = word(self.words.words(), port, PortWord::BusyUntil);
        busy.fetch_max(self.absolute(until_ns), Ordering::Relaxed);
        self.add(port, PortWord::Pauses, 1);
    }

    pub(super) fn count_dropped(&self, port: usize) {
        self.add(port, PortWord::Dropped, 1);
    }

    /// Adds to a counter, and returns its earlier value.
    fn add(&self, port: usize, which: PortWord, amount: u64) -> u64 {
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

    /// Checks a time in a word of a port. Returns 0 if no process can have meant it; the port is idle then.
    fn plausible(&self, port: usize, loaded_ns: u64) -> u64 {
        let bound_ns = self.bounds_ns.get(port).copied().unwrap_or(0);
        // The clock is read after the word: no valid time of another process is later than this allows.
        let latest_ns = self.absolute(self.clock.now_ns()).saturating_add(bound_ns);
        if loaded_ns > latest_ns { 0 } else { loaded_ns }
    }

    /// Returns the time in a word, and sets the word to 0 if no process can have meant it.
    fn plausible_or_reset(&self, port: usize, word: &AtomicU64) -> u64 {
        let loaded_ns = word.load(Ordering::Relaxed);
        let believed_ns = self.plausible(port, loaded_ns);
        if believed_ns != loaded_ns {
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

    /// Returns the contents and statistics of all ports.
    pub(super) fn reports(&self, now_ns: u64) -> Vec<QueueReport> {
        let words = self.words.words();
        let report = |(port, spec): (usize, &LinkSpec)| {
            let bytes = self.backlog_bytes(port, now_ns);
            QueueReport {
                name: spec.name(&self.topology),
                packets: load_word(words, port, PortWord::Packets),
                bytes,
                most_bytes: load_word(words, port, PortWord::MaxBytes),
                sent_bytes: load_word(words, port, PortWord::Bytes).saturating_sub(bytes),
                marked: load_word(words, port, PortWord::Marked),
                dropped: load_word(words, port, PortWord::Dropped),
                pauses: load_word(words, port, PortWord::Pauses),
            }
        };
        self.links.iter().enumerate().map(report).collect()
    }
}

/// Returns how long from now each port can be busy: a full queue, and if it can be paused, as long as one
/// behind it.
fn bounds_ns(links: &[LinkSpec], pauses: bool) -> Vec<u64> {
    let own = |spec: &LinkSpec| {
        let room = match spec.tail {
            TopologyNode::Host(_) => QUEUE_BYTES + BATCHES_BYTES,
            _ => spec.queue_bytes,
        };
        spec.direction.transmission_ns(room).saturating_add(GRAIN_NS + SLACK_NS)
    };
    let mut bounds: Vec<u64> = links.iter().map(own).collect();
    // A pause propagates at most along all links from the receiver to the sender.
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

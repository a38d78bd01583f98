//! A network of planes in virtual time. Each plane is leaves and spines that are as fast as their hosts
//! together; entropy chooses the spine. Ports have queues, mark from a threshold on except at the last hop,
//! and trim or drop what does not fit.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pumice_transport::mrc::entropy::Trim;

/// Time that a packet takes through a link and the switch behind it.
const LINK_NS: u64 = 1_250;
/// Ethernet, IP and UDP of each packet, with the gap between frames.
pub(crate) const OVERHEAD_BYTES: usize = 66;
/// What is left of a trimmed packet.
const TRIMMED_BYTES: usize = 44;
/// What a trimmed packet takes on a link.
pub(crate) const TRIMMED_LINK_BYTES: usize = TRIMMED_BYTES + OVERHEAD_BYTES;
/// Bytes of headers and answers that a port holds.
const MOST_URGENT_BYTES: usize = 1 << 20;
/// Packets of data that a host's port holds: more wait in their queue pairs.
const MOST_AT_HOST: usize = 4;

/// The network's shape and what its ports do.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) planes: u8,
    pub(crate) leaves: usize,
    pub(crate) hosts_per_leaf: usize,
    /// Bytes in a ns of each link.
    pub(crate) rate: f64,
    pub(crate) trims: bool,
    /// What a trimmed packet takes on a link: [`TRIMMED_LINK_BYTES`], unless another network counts less.
    pub(crate) trimmed_link_bytes: usize,
}

impl Shape {
    pub(crate) const fn hosts(&self) -> usize {
        self.leaves * self.hosts_per_leaf
    }
}

/// Who gets a packet, and what became of it on the way.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    /// 0: the end that sends data; 1: the other one.
    pub(crate) to: usize,
    pub(crate) from_host: u16,
    pub(crate) to_host: u16,
    pub(crate) plane: u8,
    pub(crate) entropy: u32,
    /// Answers and trimmed packets, which overtake data.
    pub(crate) is_urgent: bool,
    pub(crate) is_ecn_capable: bool,
    pub(crate) is_trimmable: bool,
    pub(crate) congested: bool,
    pub(crate) trim: Option<Trim>,
    /// What it takes on a link beside its bytes.
    pub(crate) overhead_bytes: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Packet {
    fn link_bytes(&self) -> usize {
        self.bytes.len() + self.overhead_bytes
    }
}

/// Where a link leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Leaf(u16),
    Spine(u16),
    Host(u16),
}

/// A port and its link, in one direction.
struct Link {
    to: Node,
    queues: [VecDeque<Packet>; 2],
    bytes: [usize; 2],
    is_busy: bool,
    is_of_host: bool,
}

/// What happens next.
pub(crate) enum Event {
    /// A port has sent a packet.
    Free { link: usize },
    /// A packet comes out of a link.
    Arrives { link: usize, packet: Box<Packet> },
    /// The timer of an end is due.
    Timer { flow: u32, end: usize },
    /// A host looks for what it can send.
    Pump { host: usize },
}

struct Due {
    at_ns: u64,
    serial: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at_ns, self.serial) == (other.at_ns, other.serial)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at_ns, self.serial).cmp(&(other.at_ns, other.serial))
    }
}

/// Packets and what was done to them.
#[derive(Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) lost: u64,
    pub(crate) trimmed: u64,
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
}

/// The network.
pub(crate) struct Fabric {
    pub(crate) shape: Shape,
    links: Vec<Link>,
    due: BinaryHeap<Reverse<Due>>,
    serial: u64,
    pub(crate) now_ns: u64,
    random: u64,
    /// Parts of a million that are lost on each way through a plane.
    pub(crate) loss_ppm: Vec<u64>,
    pub(crate) dead: Option<u8>,
    pub(crate) counts: Counts,
}

impl Fabric {
    pub(crate) fn new(shape: Shape, seed: u64) -> Fabric {
        let mut links = Vec::new();
        let mut link = |to, is_of_host| {
            let queues = [VecDeque::new(), VecDeque::new()];
            links.push(Link { to, queues, bytes: [0; 2], is_busy: false, is_of_host });
        };
        let spines = shape.hosts_per_leaf;
        // The order is that of `up`, `down`, `to_spine` and `to_leaf`.
        for _ in 0..shape.planes {
            for host in 0..shape.hosts() {
                link(Node::Leaf((host / shape.hosts_per_leaf) as u16), true);
            }
            for host in 0..shape.hosts() {
                link(Node::Host(host as u16), false);
            }
            for _ in 0..shape.leaves {
                (0..spines).for_each(|spine| link(Node::Spine(spine as u16), false));
            }
            for _ in 0..spines {
                (0..shape.leaves).for_each(|leaf| link(Node::Leaf(leaf as u16), false));
            }
        }
        Fabric {
            links,
            due: BinaryHeap::new(),
            serial: 0,
            now_ns: 1_000_000,
            random: seed,
            loss_ppm: vec![0; shape.planes.into()],
            dead: None,
            counts: Counts::default(),
            shape,
        }
    }

    fn first_of(&self, plane: u8) -> usize {
        let Shape { leaves, hosts_per_leaf, .. } = self.shape;
        usize::from(plane) * (2 * self.shape.hosts() + 2 * leaves * hosts_per_leaf)
    }

    pub(crate) fn chance(&mut self, of: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.random) % of.max(1)
    }

    pub(crate) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.serial += 1;
        self.due.push(Reverse(Due { at_ns: at_ns.max(self.now_ns), serial: self.serial, event }));
    }

    /// Takes the next event, and sets the clock to its time, if it comes before the end.
    pub(crate) fn next(&mut self, end_ns: u64) -> Option<Event> {
        if self.due.peek().is_none_or(|Reverse(due)| due.at_ns >= end_ns) {
            self.now_ns = self.now_ns.max(end_ns);
            return None;
        }
        let Reverse(due) = self.due.pop()?;
        self.now_ns = due.at_ns;
        Some(due.event)
    }

    /// Reports whether a host's port to a plane takes another packet of data.
    pub(crate) fn has_room(&self, host: usize, plane: u8) -> bool {
        self.links[self.first_of(plane) + host].queues[0].len() < MOST_AT_HOST
    }

    /// A host sends a packet.
    pub(crate) fn send(&mut self, packet: Packet) {
        let link = self.first_of(packet.plane) + usize::from(packet.from_host);
        self.enqueue(link, packet);
    }

    fn enqueue(&mut self, link: usize, mut packet: Packet) {
        let Shape { trims, trimmed_link_bytes, rate, .. } = self.shape;
        let length = packet.link_bytes();
        let port = &self.links[link];
        let (waiting, is_of_host) = (port.bytes[0] as f64, port.is_of_host);
        let is_last_hop = matches!(port.to, Node::Host(_));
        let urgent_is_full = port.bytes[1] + length > MOST_URGENT_BYTES;
        let bdp = rate * 12_000.0;
        if !packet.is_urgent && !is_of_host {
            // Trimming begins at one product of bandwidth and round trip, one and a half at the last hop.
            // What is not trimmed has more room, and is marked at the last hop as well.
            let trims = trims && packet.is_trimmable;
            let products = match (trims, is_last_hop) {
                (false, _) => 4.0,
                (true, true) => 1.5,
                (true, false) => 1.0,
            };
            let room = bdp * products;
            if waiting + length as f64 > room {
                if !trims {
                    self.counts.dropped += 1;
                    return;
                }
                self.counts.trimmed += 1;
                packet.bytes.truncate(TRIMMED_BYTES);
                packet.overhead_bytes = trimmed_link_bytes.saturating_sub(TRIMMED_BYTES);
                packet.is_urgent = true;
                packet.trim = Some(if is_last_hop { Trim::LastHop } else { Trim::EarlierHop });
            } else if packet.is_ecn_capable && (!is_last_hop || !trims) {
                let share = ((waiting / bdp - 0.2) / 0.6).clamp(0.0, 1.0);
                if (self.chance(1000) as f64) < share * 1000.0 {
                    self.counts.marked += 1;
                    packet.congested = true;
                }
            }
        }
        if packet.is_urgent && urgent_is_full {
            self.counts.dropped += 1;
            return;
        }
        let class = usize::from(packet.is_urgent);
        let length = packet.link_bytes();
        let port = &mut self.links[link];
        port.bytes[class] += length;
        port.queues[class].push_back(packet);
        if !port.is_busy {
            self.start(link);
        }
    }

    /// A port begins to send what is most urgent.
    fn start(&mut self, link: usize) {
        let port = &mut self.links[link];
        let class = usize::from(!port.queues[1].is_empty());
        let Some(packet) = port.queues[class].pop_front() else {
            port.is_busy = false;
            return;
        };
        port.is_busy = true;
        port.bytes[class] -= packet.link_bytes();
        let sent_ns = self.now_ns + (packet.link_bytes() as f64 / self.shape.rate).ceil() as u64;
        self.schedule(sent_ns, Event::Free { link });
        self.schedule(sent_ns + LINK_NS, Event::Arrives { link, packet: Box::new(packet) });
    }

    /// A port has sent a packet. Returns the host that may send another one.
    pub(crate) fn freed(&mut self, link: usize) -> Option<usize> {
        self.start(link);
        let per_plane = self.first_of(1);
        let place = link % per_plane;
        (self.links[link].is_of_host && self.links[link].queues[0].len() < MOST_AT_HOST).then_some(place)
    }

    /// A packet comes out of a link. Returns it if it has reached its host.
    pub(crate) fn arrives(&mut self, link: usize, packet: Box<Packet>) -> Option<Box<Packet>> {
        if self.dead == Some(packet.plane) {
            self.counts.lost += 1;
            return None;
        }
        let Shape { hosts_per_leaf, leaves, .. } = self.shape;
        let first = self.first_of(packet.plane);
        let hosts = self.shape.hosts();
        let target_leaf = usize::from(packet.to_host) / hosts_per_leaf;
        let next = match self.links[link].to {
            Node::Host(_) => return Some(packet),
            Node::Leaf(leaf) if usize::from(leaf) == target_leaf => {
                // Each packet passes its last leaf once: here it is lost if the plane loses it.
                let ppm = self.loss_ppm[usize::from(packet.plane)];
                if ppm > 0 && self.chance(1_000_000) < ppm {
                    self.counts.lost += 1;
                    return None;
                }
                first + hosts + usize::from(packet.to_host)
            }
            Node::Leaf(leaf) => {
                let between = u64::from(packet.from_host) << 32 | u64::from(packet.to_host) << 48;
                let spine = mixed(between ^ u64::from(packet.entropy)) as usize % hosts_per_leaf;
                first + 2 * hosts + usize::from(leaf) * hosts_per_leaf + spine
            }
            Node::Spine(spine) => {
                first + 2 * hosts + leaves * hosts_per_leaf + usize::from(spine) * leaves + target_leaf
            }
        };
        self.enqueue(next, *packet);
        None
    }
}

/// A number that follows from another one.
pub(crate) fn mixed(from: u64) -> u64 {
    let mixed = (from ^ from >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

//! The switches at work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;

use pumice_faults::Fate;

use crate::fabric::packet::Packet;
use crate::link::QueueFull;
use crate::topology::{Layout, LinkSpec, QueueReport, SwitchPauses, Topology};

/// Bytes that the queue of a host has room for: more than the windows of its queue pairs let wait there.
const HOST_QUEUE_BYTES: u64 = 256 << 20;
/// Packets in all queues and on all links together; what is more is lost as if by a full queue.
const MOST_PACKETS: usize = 1 << 20;
const ECN_CE: u8 = 0b11;

/// A packet between two ports of the network.
#[derive(Debug)]
pub(in crate::fabric) struct Transit {
    pub(in crate::fabric) from: usize,
    pub(in crate::fabric) to: usize,
    pub(in crate::fabric) packet: Packet,
    /// What happens to it when it arrives.
    pub(in crate::fabric) fate: Fate,
    /// Bytes on a link.
    pub(in crate::fabric) bytes: u64,
}

/// A packet in a queue, and the link that brought it to this switch.
#[derive(Debug)]
struct Queued {
    transit: Transit,
    came_by: Option<usize>,
}

#[derive(Debug)]
struct Link {
    spec: LinkSpec,
    queue: VecDeque<Queued>,
    /// What is being sent: bytes, and the link that brought it.
    sending: Option<(u64, Option<usize>)>,
    /// The head asked the tail to stop.
    is_paused: bool,
    /// The head has asked, which the tail may not know yet.
    asked: bool,
    /// Bytes that this link brought and the switch at its head still holds.
    held_bytes: u64,
    /// Packets that joined the queue.
    joined: u64,
    bytes: u64,
    report: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    most_bytes: u64,
    sent_bytes: u64,
    marked: u64,
    dropped: u64,
    pauses: u64,
}

#[derive(Debug)]
enum Happening {
    /// A packet is at the head of a link.
    Arrives(usize, Transit),
    /// A link has sent a packet.
    Sent(usize),
    /// The tail of a link hears that it is to stop, or to go on.
    Pauses(usize, bool),
}

/// What happens, and when; what was planned first comes first at one time.
#[derive(Debug)]
struct Event {
    at_ns: u64,
    sequence: u64,
    happening: Happening,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.sequence).cmp(&(other.at_ns, other.sequence))
    }
}

/// All switches of a network and the links between them and the hosts.
#[derive(Debug)]
pub(in crate::fabric) struct Switches {
    topology: Topology,
    layout: Layout,
    /// The host that each port of the network is.
    hosts: Vec<Option<usize>>,
    links: Vec<Link>,
    /// Bytes that each switch holds.
    held_bytes: Vec<u64>,
    buffer_bytes: u64,
    pause: Option<SwitchPauses>,
    events: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    packets: usize,
}

impl Switches {
    /// Switches without anything in them; no port is a host if there can be no such network.
    pub(in crate::fabric) fn new(topology: &Topology) -> Switches {
        let nothing = Topology { hosts: 0, ..Topology::star(0, topology.link) };
        let topology = if topology.check().is_ok() { topology } else { &nothing };
        let layout = Layout::of(topology);
        let links = layout.links(topology).into_iter().map(|spec| Link {
            spec,
            queue: VecDeque::new(),
            sending: None,
            is_paused: false,
            asked: false,
            held_bytes: 0,
            joined: 0,
            bytes: 0,
            report: Counts::default(),
        });
        Switches {
            links: links.collect(),
            held_bytes: vec![0; layout.switch_count()],
            layout,
            topology: topology.clone(),
            hosts: Vec::new(),
            buffer_bytes: topology.queues.buffer_bytes.unwrap_or(u64::MAX),
            pause: topology.queues.pause,
            events: BinaryHeap::new(),
            sequence: 0,
            packets: 0,
        }
    }

    /// The next port of the network is attached: the host that has one of its addresses, or else the next
    /// host.
    pub(in crate::fabric) fn attach(&mut self, addresses: &[IpAddr]) {
        let host = if self.topology.named.is_empty() {
            Some(self.hosts.len()).filter(|host| *host < self.layout.hosts)
        } else {
            addresses.iter().find_map(|address| self.topology.host_of(*address))
        };
        self.hosts.push(host);
    }

    /// Whether the port is that of a host.
    pub(in crate::fabric) fn is_host(&self, port: usize) -> bool {
        self.host(port).is_some()
    }

    fn host(&self, port: usize) -> Option<usize> {
        self.hosts.get(port).copied().flatten()
    }

    /// A host sends a packet.
    ///
    /// # Errors
    /// The queue of the host is full.
    pub(in crate::fabric) fn send(&mut self, now_ns: u64, transit: Transit) -> Result<(), QueueFull> {
        if self.packets >= MOST_PACKETS {
            return Err(QueueFull);
        }
        let Some(host) = self.host(transit.from) else { return Err(QueueFull) };
        let link = Layout::link_of(host);
        self.packets += 1;
        self.join(link, None, now_ns, transit)
    }

    /// When something happens next.
    pub(in crate::fabric) fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(event)| event.at_ns)
    }

    /// Lets the next thing happen: a packet that has arrived at its host, or that was lost.
    pub(in crate::fabric) fn step(&mut self) -> Option<Outcome> {
        let Reverse(Event { at_ns, happening, .. }) = self.events.pop()?;
        match happening {
            Happening::Arrives(link, transit) => return self.arrive(link, at_ns, transit),
            Happening::Sent(link) => self.sent(link, at_ns),
            Happening::Pauses(link, pauses) => {
                if let Some(link) = self.links.get_mut(link) {
                    link.is_paused = pauses;
                    link.report.pauses += u64::from(pauses);
                }
                self.start(link, at_ns);
            }
        }
        None
    }

    /// What the queues hold, and what happened to them.
    pub(in crate::fabric) fn reports(&self) -> Vec<QueueReport> {
        let report = |link: &Link| QueueReport {
            name: link.spec.name(&self.topology),
            packets: link.joined,
            bytes: link.bytes,
            most_bytes: link.report.most_bytes,
            sent_bytes: link.report.sent_bytes,
            marked: link.report.marked,
            dropped: link.report.dropped,
            pauses: link.report.pauses,
        };
        self.links.iter().map(report).collect()
    }

    /// A packet joins the queue of a link. `came_by`: the link that brought it to the switch.
    fn join(
        &mut self,
        number: usize,
        came_by: Option<usize>,
        now_ns: u64,
        mut transit: Transit,
    ) -> Result<(), QueueFull> {
        let Some(link) = self.links.get_mut(number) else { return Err(self.lose()) };
        let switch = link.spec.tail.switch(self.layout.leaves);
        let room = if switch.is_some() { link.spec.queue_bytes } else { HOST_QUEUE_BYTES };
        let held = switch.and_then(|switch| self.held_bytes.get_mut(switch));
        let buffered = held.as_ref().map_or(0, |held| **held);
        if link.bytes + transit.bytes > room || buffered + transit.bytes > self.buffer_bytes {
            link.report.dropped += 1;
            return Err(self.lose());
        }
        let ordinal = link.joined;
        link.joined += 1;
        let capable = matches!(transit.packet.traffic_class & ECN_CE, 0b01 | 0b10);
        if capable && link.spec.direction.marks(link.bytes, ordinal) {
            transit.packet.traffic_class |= ECN_CE;
            link.report.marked += 1;
        }
        let bytes = transit.bytes;
        link.bytes += bytes;
        link.report.most_bytes = link.report.most_bytes.max(link.bytes);
        link.queue.push_back(Queued { transit, came_by });
        if let Some(held) = held {
            *held += bytes;
        }
        self.hold(came_by, bytes, now_ns);
        self.start(number, now_ns);
        Ok(())
    }

    /// A switch holds so many bytes more of what a link brought: its sender may have to stop.
    fn hold(&mut self, came_by: Option<usize>, bytes: u64, now_ns: u64) {
        let Some(number) = came_by else { return };
        let Some(link) = self.links.get_mut(number) else { return };
        link.held_bytes += bytes;
        let stops = self.pause.is_some_and(|pause| link.held_bytes > pause.xoff_bytes);
        if stops && !std::mem::replace(&mut link.asked, true) {
            let at_ns = now_ns.saturating_add(link.spec.direction.delay_ns);
            self.plan(at_ns, Happening::Pauses(number, true));
        }
    }

    /// It holds so many bytes less: the sender may go on.
    fn let_go(&mut self, came_by: Option<usize>, bytes: u64, now_ns: u64) {
        let Some(number) = came_by else { return };
        let Some(link) = self.links.get_mut(number) else { return };
        link.held_bytes = link.held_bytes.saturating_sub(bytes);
        let goes_on = self.pause.is_some_and(|pause| link.held_bytes <= pause.xon_bytes);
        if goes_on && std::mem::replace(&mut link.asked, false) {
            let at_ns = now_ns.saturating_add(link.spec.direction.delay_ns);
            self.plan(at_ns, Happening::Pauses(number, false));
        }
    }

    /// Sends the next packet of a link that sends none.
    fn start(&mut self, number: usize, now_ns: u64) {
        let Some(link) = self.links.get_mut(number) else { return };
        if link.is_paused || link.sending.is_some() {
            return;
        }
        let Some(Queued { transit, came_by }) = link.queue.pop_front() else { return };
        link.sending = Some((transit.bytes, came_by));
        let sent_ns = now_ns.saturating_add(link.spec.direction.transmission_ns(transit.bytes));
        let arrives_ns = sent_ns.saturating_add(link.spec.direction.delay_ns);
        self.plan(sent_ns, Happening::Sent(number));
        self.plan(arrives_ns, Happening::Arrives(number, transit));
    }

    fn sent(&mut self, number: usize, now_ns: u64) {
        let Some(link) = self.links.get_mut(number) else { return };
        let Some((bytes, came_by)) = link.sending.take() else { return };
        link.bytes = link.bytes.saturating_sub(bytes);
        link.report.sent_bytes += bytes;
        let switch = link.spec.tail.switch(self.layout.leaves);
        if let Some(held) = switch.and_then(|switch| self.held_bytes.get_mut(switch)) {
            *held = held.saturating_sub(bytes);
        }
        self.let_go(came_by, bytes, now_ns);
        self.start(number, now_ns);
    }

    fn arrive(&mut self, number: usize, now_ns: u64, transit: Transit) -> Option<Outcome> {
        let head = self.links.get(number)?.spec.head;
        let from = transit.from;
        let to = self.host(transit.to)?;
        match self.layout.next(head, to, &transit.packet.flow) {
            Some(next) => {
                let joined = self.join(next, Some(number), now_ns, transit);
                joined.is_err().then_some(Outcome::Lost(from))
            }
            None => {
                self.packets = self.packets.saturating_sub(1);
                Some(Outcome::Arrived(transit))
            }
        }
    }

    /// A packet is gone.
    fn lose(&mut self) -> QueueFull {
        self.packets = self.packets.saturating_sub(1);
        QueueFull
    }

    fn plan(&mut self, at_ns: u64, happening: Happening) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.events.push(Reverse(Event { at_ns, sequence, happening }));
    }
}

/// How a packet's way through the switches ended.
#[derive(Debug)]
pub(in crate::fabric) enum Outcome {
    /// At its host.
    Arrived(Transit),
    /// A queue had no room; which host sent it.
    Lost(usize),
}

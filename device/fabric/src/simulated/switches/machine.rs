//! The state machine of the switches.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;

use pumice_faults::Fate;

use crate::simulated::packet::FabricPacket;
use pumice_model::network::QueueFull;
use pumice_model::network::topology::{Layout, LinkSpec, QueueReport, SwitchPauses, Topology};

/// Length of the queue of a host, in bytes: more than the windows of its queue pairs let wait there.
const HOST_QUEUE_BYTES: u64 = 256 << 20;
/// Largest number of packets in all queues and on all links together; further ones are lost as if by a full
/// queue.
const MAX_PACKETS: usize = 1 << 20;
const ECN_CE: u8 = 0b11;

/// A packet between two ports of the network.
#[derive(Debug)]
pub(in crate::simulated) struct Transit {
    pub(in crate::simulated) from: usize,
    pub(in crate::simulated) to: usize,
    pub(in crate::simulated) packet: FabricPacket,
    /// Fate that is applied to the packet when it arrives.
    pub(in crate::simulated) fate: Fate,
    /// Length of the packet on a link, in bytes.
    pub(in crate::simulated) bytes: u64,
}

/// A packet in a queue, and the link that brought it to this switch.
#[derive(Debug)]
struct Queued {
    transit: Transit,
    arrival_link: Option<usize>,
}

#[derive(Debug)]
struct SwitchedLink {
    spec: LinkSpec,
    queue: VecDeque<Queued>,
    /// Packet that is being sent: its length in bytes, and the link that brought it.
    sending: Option<(u64, Option<usize>)>,
    /// The head asked the tail to stop.
    is_paused: bool,
    /// The head has asked for a stop that the tail may not know of yet.
    pause_requested: bool,
    /// Bytes that this link brought and the switch at its head still holds.
    held_bytes: u64,
    /// Number of packets that joined the queue.
    joined: u64,
    bytes: u64,
    report: LinkCounts,
}

#[derive(Debug, Default)]
struct LinkCounts {
    most_bytes: u64,
    sent_bytes: u64,
    marked: u64,
    dropped: u64,
    pauses: u64,
}

#[derive(Debug)]
enum SwitchEventKind {
    /// A packet is at the head of a link.
    Arrives(usize, Transit),
    /// A link has sent a packet.
    Sent(usize),
    /// The tail of a link receives the request to stop, or to go on.
    Pauses(usize, bool),
}

/// An event and its time; of events at one time, the one that was planned first comes first.
#[derive(Debug)]
struct SwitchEvent {
    at_ns: u64,
    sequence: u64,
    happening: SwitchEventKind,
}

impl PartialEq for SwitchEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for SwitchEvent {}
impl PartialOrd for SwitchEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for SwitchEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.sequence).cmp(&(other.at_ns, other.sequence))
    }
}

/// All switches of a network and the links between them and the hosts.
#[derive(Debug)]
pub(in crate::simulated) struct Switches {
    topology: Topology,
    layout: Layout,
    /// Host that each port of the network is.
    hosts: Vec<Option<usize>>,
    links: Vec<SwitchedLink>,
    /// Number of bytes that each switch holds.
    held_bytes: Vec<u64>,
    buffer_bytes: u64,
    pause: Option<SwitchPauses>,
    events: BinaryHeap<Reverse<SwitchEvent>>,
    sequence: u64,
    packets: usize,
}

impl Switches {
    /// Creates empty switches. If there can be no such network, no port is a host.
    pub(in crate::simulated) fn new(topology: &Topology) -> Switches {
        let nothing = Topology { hosts: 0, ..Topology::star(0, topology.link) };
        let topology = if topology.check().is_ok() { topology } else { &nothing };
        let layout = Layout::of(topology);
        let links = layout.links(topology).into_iter().map(|spec| SwitchedLink {
            spec,
            queue: VecDeque::new(),
            sending: None,
            is_paused: false,
            pause_requested: false,
            held_bytes: 0,
            joined: 0,
            bytes: 0,
            report: LinkCounts::default(),
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

    /// Attaches the next port of the network: it is the host that has one of its addresses, or else the next
    /// host.
    pub(in crate::simulated) fn attach(&mut self, addresses: &[IpAddr]) {
        let host = if self.topology.named.is_empty() {
            Some(self.hosts.len()).filter(|host| *host < self.layout.hosts)
        } else {
            addresses.iter().find_map(|address| self.topology.host_of(*address))
        };
        self.hosts.push(host);
    }

    /// Reports whether the port is that of a host.
    pub(in crate::simulated) fn is_host(&self, port: usize) -> bool {
        self.host(port).is_some()
    }

    fn host(&self, port: usize) -> Option<usize> {
        self.hosts.get(port).copied().flatten()
    }

    /// Sends a packet from a host.
    ///
    /// # Errors
    /// Fails if the queue of the host is full.
    pub(in crate::simulated) fn send(&mut self, now_ns: u64, transit: Transit) -> Result<(), QueueFull> {
        if self.packets >= MAX_PACKETS {
            return Err(QueueFull);
        }
        let Some(host) = self.host(transit.from) else { return Err(QueueFull) };
        let link = Layout::link_of(host);
        self.packets += 1;
        self.join(link, None, now_ns, transit)
    }

    /// Returns the time of the next event.
    pub(in crate::simulated) fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(event)| event.at_ns)
    }

    /// Processes the next event, and returns a packet that has arrived at its host, or that was lost.
    pub(in crate::simulated) fn step(&mut self) -> Option<TransitOutcome> {
        let Reverse(SwitchEvent { at_ns, happening, .. }) = self.events.pop()?;
        match happening {
            SwitchEventKind::Arrives(link, transit) => return self.arrive(link, at_ns, transit),
            SwitchEventKind::Sent(link) => self.sent(link, at_ns),
            SwitchEventKind::Pauses(link, pauses) => {
                if let Some(link) = self.links.get_mut(link) {
                    link.is_paused = pauses;
                    link.report.pauses += u64::from(pauses);
                }
                self.start(link, at_ns);
            }
        }
        None
    }

    /// Returns the queues: their contents and statistics.
    pub(in crate::simulated) fn reports(&self) -> Vec<QueueReport> {
        let report = |link: &SwitchedLink| QueueReport {
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

    /// Adds a packet to the queue of a link. `arrival_link` is the link that brought it to the switch.
    fn join(
        &mut self,
        number: usize,
        arrival_link: Option<usize>,
        now_ns: u64,
        mut transit: Transit,
    ) -> Result<(), QueueFull> {
        let Some(link) = self.links.get_mut(number) else { return Err(self.count_lost()) };
        let switch = link.spec.tail.switch(&self.layout);
        let room = if switch.is_some() { link.spec.queue_bytes } else { HOST_QUEUE_BYTES };
        let held = switch.and_then(|switch| self.held_bytes.get_mut(switch));
        let buffered = held.as_ref().map_or(0, |held| **held);
        if link.bytes + transit.bytes > room || buffered + transit.bytes > self.buffer_bytes {
            link.report.dropped += 1;
            return Err(self.count_lost());
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
        link.queue.push_back(Queued { transit, arrival_link });
        if let Some(held) = held {
            *held += bytes;
        }
        self.hold(arrival_link, bytes, now_ns);
        self.start(number, now_ns);
        Ok(())
    }

    /// Adds to the bytes that a switch holds of what a link brought: the sender may have to stop.
    fn hold(&mut self, arrival_link: Option<usize>, bytes: u64, now_ns: u64) {
        let Some(number) = arrival_link else { return };
        let Some(link) = self.links.get_mut(number) else { return };
        link.held_bytes += bytes;
        let stops = self.pause.is_some_and(|pause| link.held_bytes > pause.xoff_bytes);
        if stops && !std::mem::replace(&mut link.pause_requested, true) {
            let at_ns = now_ns.saturating_add(link.spec.direction.delay_ns);
            self.plan(at_ns, SwitchEventKind::Pauses(number, true));
        }
    }

    /// Subtracts from the bytes that a switch holds of what a link brought: the sender may go on.
    fn release_bytes(&mut self, arrival_link: Option<usize>, bytes: u64, now_ns: u64) {
        let Some(number) = arrival_link else { return };
        let Some(link) = self.links.get_mut(number) else { return };
        link.held_bytes = link.held_bytes.saturating_sub(bytes);
        let goes_on = self.pause.is_some_and(|pause| link.held_bytes <= pause.xon_bytes);
        if goes_on && std::mem::replace(&mut link.pause_requested, false) {
            let at_ns = now_ns.saturating_add(link.spec.direction.delay_ns);
            self.plan(at_ns, SwitchEventKind::Pauses(number, false));
        }
    }

    /// Sends the next packet of a link that sends none.
    fn start(&mut self, number: usize, now_ns: u64) {
        let Some(link) = self.links.get_mut(number) else { return };
        if link.is_paused || link.sending.is_some() {
            return;
        }
        let Some(Queued { transit, arrival_link }) = link.queue.pop_front() else { return };
        link.sending = Some((transit.bytes, arrival_link));
        let sent_ns = now_ns.saturating_add(link.spec.direction.transmission_ns(transit.bytes));
        let arrives_ns = sent_ns.saturating_add(link.spec.direction.delay_ns);
        self.plan(sent_ns, SwitchEventKind::Sent(number));
        self.plan(arrives_ns, SwitchEventKind::Arrives(number, transit));
    }

    fn sent(&mut self, number: usize, now_ns: u64) {
        let Some(link) = self.links.get_mut(number) else { return };
        let Some((bytes, arrival_link)) = link.sending.take() else { return };
        link.bytes = link.bytes.saturating_sub(bytes);
        link.report.sent_bytes += bytes;
        let switch = link.spec.tail.switch(&self.layout);
        if let Some(held) = switch.and_then(|switch| self.held_bytes.get_mut(switch)) {
            *held = held.saturating_sub(bytes);
        }
        self.release_bytes(arrival_link, bytes, now_ns);
        self.start(number, now_ns);
    }

    fn arrive(&mut self, number: usize, now_ns: u64, transit: Transit) -> Option<TransitOutcome> {
        let head = self.links.get(number)?.spec.head;
        let from = transit.from;
        let to = self.host(transit.to)?;
        match self.layout.next(head, to, &transit.packet.flow) {
            Some(next) => {
                let joined = self.join(next, Some(number), now_ns, transit);
                joined.is_err().then_some(TransitOutcome::Lost(from))
            }
            None => {
                self.packets = self.packets.saturating_sub(1);
                Some(TransitOutcome::Arrived(transit))
            }
        }
    }

    /// Counts a packet that is lost.
    fn count_lost(&mut self) -> QueueFull {
        self.packets = self.packets.saturating_sub(1);
        QueueFull
    }

    fn plan(&mut self, at_ns: u64, happening: SwitchEventKind) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.events.push(Reverse(SwitchEvent { at_ns, sequence, happening }));
    }
}

/// The end of a packet's way through the switches.
#[derive(Debug)]
pub(in crate::simulated) enum TransitOutcome {
    /// The packet is at its host.
    Arrived(Transit),
    /// A queue had no room for a packet of this host.
    Lost(usize),
}

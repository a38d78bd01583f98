//! The network: ports, queues, packets on their way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_faults::{Fate, WireFaults};
use pumice_model::port::batch;
use pumice_platform::clock::Random;
use pumice_transport::path::Path;

use super::config::{FabricConfig, FabricStats};
use super::packet::{Digest, DigestEvent, FabricPacket};
use super::receive::receive_charge;
use super::switches::{Switches, Transit, TransitOutcome};
use crate::link::{ip_overhead_bytes, wire_bytes};
use pumice_faults::port::damage::{damage, payload_bytes};
use pumice_model::network::LinkQueue;
use pumice_model::network::topology::QueueReport;
use pumice_model::port::batch::{GsoBatch, TransmitError};

/// Largest number of packets on their way, all ports together; further ones are lost as if by a full queue.
const IN_FLIGHT_LIMIT: usize = 1 << 20;

/// Congestion experienced: both ECN bits.
const ECN_CE: u8 = 0b11;

/// A packet with its arrival; ordered by time, then by the order of sending.
#[derive(Debug)]
struct InFlight {
    arrival_ns: u64,
    sequence: u64,
    to: usize,
    packet: FabricPacket,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for InFlight {}
impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival_ns, self.sequence).cmp(&(other.arrival_ns, other.sequence))
    }
}

#[derive(Debug, Default)]
struct Attachment {
    attached: bool,
    link: LinkQueue,
    inbox: VecDeque<FabricPacket>,
    inbox_charge: usize,
    /// Charge of the packets on their way to this port.
    coming_charge: usize,
    /// The port takes nothing from its inbox.
    stopped: bool,
}

#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: FabricConfig,
    pub(super) faults: WireFaults,
    stats: FabricStats,
    /// Switches between the ports; without them, each port's link leads to all others.
    switches: Option<Switches>,
    random: Random,
    now_ns: u64,
    attachments: Vec<Attachment>,
    owners: BTreeMap<IpAddr, usize>,
    /// Group → port → number of times that it joined.
    groups: BTreeMap<IpAddr, BTreeMap<usize, usize>>,
    cuts: BTreeSet<(usize, usize)>,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    sequence: u64,
    /// Latest arrival per pair of ports: jitter does not reorder.
    last_arrivals: BTreeMap<(usize, usize), u64>,
    digest: Digest,
}

impl Network {
    pub(super) fn new(config: FabricConfig) -> Network {
        Network {
            faults: WireFaults::new(&config.faults),
            stats: FabricStats::default(),
            switches: config.topology.as_ref().map(Switches::new),
            random: Random::new(config.seed),
            config,
            now_ns: 0,
            attachments: Vec::new(),
            owners: BTreeMap::new(),
            groups: BTreeMap::new(),
            cuts: BTreeSet::new(),
            in_flight: BinaryHeap::new(),
            sequence: 0,
            last_arrivals: BTreeMap::new(),
            digest: Digest::default(),
        }
    }

    pub(super) fn attach(&mut self, addresses: &[IpAddr]) -> usize {
        let index = self.attachments.len();
        self.attachments.push(Attachment { attached: true, ..Attachment::default() });
        if let Some(switches) = &mut self.switches {
            switches.attach(addresses);
        }
        self.owners.extend(addresses.iter().map(|&address| (address, index)));
        index
    }

    pub(super) fn detach(&mut self, port: usize) {
        self.owners.retain(|_, owner| *owner != port);
        for members in self.groups.values_mut() {
            members.remove(&port);
        }
        if let Some(attachment) = self.attachments.get_mut(port) {
            *attachment = Attachment::default();
        }
    }

    pub(super) fn join(&mut self, port: usize, group: IpAddr) {
        *self.groups.entry(group).or_default().entry(port).or_default() += 1;
    }

    /// Undoes one join of a group. Returns false if the port has not joined.
    pub(super) fn leave(&mut self, port: usize, group: IpAddr) -> bool {
        let Some(members) = self.groups.get_mut(&group) else { return false };
        let Some(joins) = members.get_mut(&port) else { return false };
        *joins -= 1;
        if *joins == 0 {
            members.remove(&port);
        }
        true
    }

    pub(super) fn set_cut(&mut self, one: IpAddr, other: IpAddr, cut: bool) -> bool {
        let (Some(&one), Some(&other)) = (self.owners.get(&one), self.owners.get(&other)) else {
            return false;
        };
        for pair in [(one, other), (other, one)] {
            if cut {
                self.cuts.insert(pair);
            } else {
                self.cuts.remove(&pair);
            }
        }
        true
    }

    pub(super) fn set_stopped(&mut self, address: IpAddr, stopped: bool) -> bool {
        let port = self.owners.get(&address).and_then(|&owner| self.attachments.get_mut(owner));
        let Some(attachment) = port else { return false };
        attachment.stopped = stopped;
        true
    }

    pub(super) fn kill(&mut self, address: IpAddr) -> bool {
        let Some(&port) = self.owners.get(&address) else { return false };
        self.detach(port);
        true
    }

    /// Reports whether the port at `address` has room for the largest batch, now and when it has all that is
    /// on its way. An address without a port has room for everything.
    pub(super) fn has_room(&mut self, address: IpAddr, batch_charge: usize) -> bool {
        let port = self.owners.get(&address).and_then(|&owner| self.attachments.get(owner));
        let taken = port.map_or(0, |attachment| attachment.inbox_charge + attachment.coming_charge);
        let has_room = taken + batch_charge <= self.config.receive_buffer_bytes;
        self.stats.back_pressured += u64::from(!has_room);
        has_room
    }

    pub(super) fn heal_all(&mut self) {
        self.cuts.clear();
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest.value()
    }

    pub(super) fn receive_buffer_bytes(&self) -> usize {
        self.config.receive_buffer_bytes
    }

    pub(super) fn stats(&self) -> FabricStats {
        let mut stats = self.stats;
        for queue in self.queues() {
            stats.marked += queue.marked;
            stats.pauses += queue.pauses;
        }
        stats
    }

    pub(super) fn queues(&self) -> Vec<QueueReport> {
        self.switches.as_ref().map(Switches::reports).unwrap_or_default()
    }

    /// Returns the time of the next event, in a switch or at a port.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        let hop_ns = self.switches.as_ref().and_then(Switches::next_ns);
        hop_ns.into_iter().chain(self.next_arrival_ns()).min()
    }

    /// Returns the time at which the next packet arrives at a port, of those that have passed all switches.
    pub(super) fn next_arrival_ns(&self) -> Option<u64> {
        self.in_flight.peek().map(|Reverse(first)| first.arrival_ns)
    }

    /// Processes the events in switches before the next arrival, but none after `limit_ns`, and returns the
    /// time of that arrival. Nothing may be sent before the earlier one of the two.
    pub(super) fn pass_switches(&mut self, limit_ns: u64) -> Option<u64> {
        while let Some(at_ns) = self.hop_before_arrivals().filter(|at_ns| *at_ns <= limit_ns) {
            self.hop(at_ns);
        }
        self.next_arrival_ns()
    }

    /// Returns the time of the next event in a switch, if no arrival comes first.
    fn hop_before_arrivals(&self) -> Option<u64> {
        let at_ns = self.switches.as_ref()?.next_ns()?;
        self.next_arrival_ns().is_none_or(|arrival_ns| at_ns <= arrival_ns).then_some(at_ns)
    }

    fn hop(&mut self, at_ns: u64) {
        match self.switches.as_mut().and_then(Switches::step) {
            Some(TransitOutcome::Arrived(Transit { from, to, packet, fate, .. })) => {
                self.carry(from, to, at_ns, packet, &fate);
            }
            Some(TransitOutcome::Lost(from)) => self.lose_in_queue(at_ns, from),
            None => {}
        }
    }

    fn lose_in_queue(&mut self, at_ns: u64, from: usize) {
        self.stats.queue_drops += 1;
        self.digest.note(DigestEvent::QueueDrop, at_ns, from, from);
    }

    /// Starts a packet on its way through the switches.
    fn enter_switches(&mut self, now_ns: u64, transit: Transit) {
        let Some(switches) = &mut self.switches else { return };
        let from = transit.from;
        if !switches.is_host(from) || !switches.is_host(transit.to) {
            self.stats.unrouted += 1;
            self.digest.note(DigestEvent::Unrouted, now_ns, from, from);
        } else if switches.send(now_ns, transit).is_err() {
            self.lose_in_queue(now_ns, from);
        }
    }

    pub(super) fn transmit(
        &mut self,
        port: usize,
        now_ns: u64,
        batch: &GsoBatch<'_>,
    ) -> Result<(), TransmitError> {
        let flow = &batch.path.flow;
        if self.owners.get(&flow.source) != Some(&port) {
            return Err(TransmitError::Refused(libc::EADDRNOTAVAIL));
        }
        if flow.source.is_ipv4() != flow.destination.is_ipv4() {
            return Err(TransmitError::Refused(libc::EAFNOSUPPORT));
        }
        let limit_bytes = self.config.link_mtu.saturating_sub(ip_overhead_bytes(flow.source.is_ipv4()));
        let longest = batch.segments().map(<[u8]>::len).max().unwrap_or(0);
        if longest > limit_bytes {
            return Err(TransmitError::TooLong { bytes: longest, limit_bytes });
        }
        for (index, segment) in batch.segments().enumerate() {
            self.send(port, now_ns, batch.path, index, segment);
        }
        Ok(())
    }

    fn send(&mut self, from: usize, now_ns: u64, path: &Path, index: usize, segment: &[u8]) {
        let flow = path.flow;
        self.stats.sent += 1;
        let packet_index = self.faults.count(flow.source, flow.destination);
        let wire_bytes = wire_bytes(flow.source.is_ipv4(), segment.len()) as u64;
        let mut traffic_class = path.traffic_class;
        let capable = matches!(traffic_class & ECN_CE, 0b01 | 0b10);
        let mut departs_at_ns = now_ns;
        if self.switches.is_none() {
            let link = self.config.link();
            let sent =
                self.attachments.get_mut(from).map(|a| a.link.send(&link, now_ns, wire_bytes, capable));
            let Some(Ok(passage)) = sent else { return self.lose_in_queue(now_ns, from) };
            if passage.is_marked {
                traffic_class |= ECN_CE;
                self.stats.marked += 1;
            }
            departs_at_ns = passage.departs_at_ns;
        }
        let receivers: Vec<usize> = if flow.destination.is_multicast() {
            self.groups.get(&flow.destination).map(|m| m.keys().copied().collect()).unwrap_or_default()
        } else {
            self.owners.get(&flow.destination).copied().into_iter().collect()
        };
        if receivers.is_empty() {
            self.stats.unrouted += 1;
            self.digest.note(DigestEvent::Unrouted, now_ns, from, from);
        }
        // A UDP receiver cannot see IP IDs; a lone packet is taken to have 0.
        let mut bytes = segment.to_vec();
        batch::renumber(&flow, batch::ip_id(index), 0, &mut bytes);
        let bytes: Arc<[u8]> = bytes.into();
        for to in receivers {
            let payload_bytes = payload_bytes(&bytes);
            let faults = &mut self.faults;
            let fate = faults.fate(flow.source, flow.destination, packet_index, bytes.len(), payload_bytes);
            let packet =
                FabricPacket { flow, traffic_class, hop_limit: path.hop_limit, bytes: Arc::clone(&bytes) };
            if self.switches.is_some() {
                let transit = Transit { from, to, packet, fate, bytes: wire_bytes };
                self.enter_switches(now_ns, transit);
            } else {
                self.carry(from, to, departs_at_ns, packet, &fate);
            }
        }
    }

    /// Carries one copy of a packet from the end of the sender's link to its arrival.
    fn carry(&mut self, from: usize, to: usize, departure_ns: u64, mut packet: FabricPacket, fate: &Fate) {
        let mut jitter_ns = || self.random.below(self.config.jitter_ns.saturating_add(1));
        let (jitter_ns, second_jitter_ns) = (jitter_ns(), jitter_ns());
        if fate.marked {
            packet.traffic_class |= ECN_CE;
        }
        if let Some(dscp) = fate.dscp {
            packet.traffic_class = dscp << 2 | packet.traffic_class & ECN_CE;
        }
        if self.cuts.contains(&(from, to)) {
            self.stats.cut_off += 1;
            self.digest.note(DigestEvent::CutOff, departure_ns, from, to);
            return;
        }
        if fate.lost {
            self.stats.lost += 1;
            self.digest.note(DigestEvent::Loss, departure_ns, from, to);
            return;
        }
        if fate.flips.is_some() || fate.kept_bytes.is_some() || fate.path_mark.is_some() {
            let mut bytes = packet.bytes.to_vec();
            damage(&packet.flow, 0, &mut bytes, fate);
            packet.bytes = bytes.into();
            self.stats.corrupted += u64::from(fate.flips.is_some());
            self.stats.truncated += u64::from(fate.kept_bytes.is_some());
        }
        // Links between switches have their own delays.
        let delay_ns = if self.switches.is_none() { self.config.delay_ns } else { 0 };
        let arrival_ns = departure_ns.saturating_add(delay_ns);
        for _ in 0..fate.copies {
            self.stats.duplicated += 1;
            let at_ns = self.in_order(from, to, arrival_ns.saturating_add(second_jitter_ns));
            self.launch(to, at_ns, packet.clone());
        }
        let at_ns = arrival_ns.saturating_add(jitter_ns);
        let extra_ns = if fate.delay_ns > 0 { fate.delay_ns } else { fate.behind_ns };
        if extra_ns > 0 {
            self.stats.reordered += 1;
            self.launch(to, at_ns.saturating_add(extra_ns), packet);
        } else {
            let at_ns = self.in_order(from, to, at_ns);
            self.launch(to, at_ns, packet);
        }
    }

    fn in_order(&mut self, from: usize, to: usize, arrival_ns: u64) -> u64 {
        let last = self.last_arrivals.entry((from, to)).or_default();
        *last = arrival_ns.max(*last);
        *last
    }

    fn launch(&mut self, to: usize, arrival_ns: u64, packet: FabricPacket) {
        if self.in_flight.len() >= IN_FLIGHT_LIMIT {
            self.stats.queue_drops += 1;
            self.digest.note(DigestEvent::QueueDrop, arrival_ns, to, to);
            return;
        }
        let sequence = self.sequence;
        self.sequence += 1;
        if let Some(attachment) = self.attachments.get_mut(to) {
            attachment.coming_charge += receive_charge(packet.bytes.len());
        }
        self.in_flight.push(Reverse(InFlight { arrival_ns, sequence, to, packet }));
    }

    pub(super) fn advance_to(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while self.pass_switches(self.now_ns).is_some_and(|at_ns| at_ns <= self.now_ns) {
            if let Some(Reverse(arrived)) = self.in_flight.pop() {
                self.deliver(arrived);
            }
        }
    }

    fn deliver(&mut self, arrived: InFlight) {
        let InFlight { arrival_ns, to, packet, .. } = arrived;
        let charge = receive_charge(packet.bytes.len());
        let room = self.config.receive_buffer_bytes;
        if let Some(attachment) = self.attachments.get_mut(to) {
            // A port may have been detached meanwhile.
            attachment.coming_charge = attachment.coming_charge.saturating_sub(charge);
        }
        match self.attachments.get_mut(to) {
            Some(a) if a.attached && a.inbox_charge + charge <= room => {
                self.stats.delivered += 1;
                self.digest.note(DigestEvent::Delivery, arrival_ns, to, packet.bytes.len());
                self.digest.packet(&packet);
                a.inbox_charge += charge;
                a.inbox.push_back(packet);
            }
            _ => {
                self.stats.receive_drops += 1;
                self.digest.note(DigestEvent::ReceiveDrop, arrival_ns, to, to);
            }
        }
    }

    /// Takes the next packet from a port's receive buffer.
    pub(super) fn take(&mut self, port: usize) -> Option<FabricPacket> {
        let attachment = self.attachments.get_mut(port).filter(|attachment| !attachment.stopped)?;
        let packet = attachment.inbox.pop_front()?;
        attachment.inbox_charge -= receive_charge(packet.bytes.len());
        Some(packet)
    }
}

/// Locks the network. A panic elsewhere does not make its state wrong: every change is complete before
/// anything that could panic.
pub(super) fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

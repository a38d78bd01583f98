//! Turns captures into processes of a timeline: which capture shows the packets of an address, and which
//! queue pairs are connected.
//!
//! Turns captures into processes of a timeline: each address becomes a process, with the queue pairs that
//! packets name.
//!
//! Finds which queue pairs are connected: a packet names its destination, and an answer has the PSN of its
//! request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::net::IpAddr;

use pumice_device::trace::{
    TimelineEvent, TimelineEventKind, TimelineProcess, TraceHeader, TracedPacket, TracedQueuePair,
};
use pumice_transport::wire::Syndrome;

use super::messages::MessageTracker;
use super::plan::{Sighting, all_sightings};

/// A direction between two addresses.
type AddressPair = (IpAddr, IpAddr);

/// For packets from an address to a queue pair of another address, the queue pair that sends them.
#[derive(Debug, Default)]
pub(super) struct ConnectedPairs {
    sender: HashMap<(AddressPair, u32), u32>,
}

impl ConnectedPairs {
    pub(super) fn of(captures: &[Vec<Sighting>]) -> ConnectedPairs {
        // The queue pair that the last request with a PSN was addressed to.
        let mut requests: HashMap<(AddressPair, u32), u32> = HashMap::new();
        let mut votes: HashMap<(AddressPair, u32), HashMap<u32, u32>> = HashMap::new();
        let is_connected =
            |one: &&Sighting| one.info.service.is_connected() && one.info.service.has_messages();
        for one in captures.iter().flatten().filter(is_connected) {
            let direction = (one.source, one.destination);
            if one.info.is_request {
                requests.insert((direction, one.psn), one.qpn);
                continue;
            }
            let back = (one.destination, one.source);
            let Some(requester) = requests.get(&(back, one.psn)) else { continue };
            // The destination of an answer sent the request, and the destination of the request sends the
            // answer.
            for (direction, to, from) in [(back, *requester, one.qpn), (direction, one.qpn, *requester)] {
                *votes.entry((direction, to)).or_default().entry(from).or_default() += 1;
            }
        }
        let best = |votes: HashMap<u32, u32>| {
            let best = votes.into_iter().max_by_key(|(qpn, count)| (*count, std::cmp::Reverse(*qpn)));
            best.map(|(qpn, _)| qpn)
        };
        let sender = votes.into_iter().filter_map(|(stream, votes)| Some((stream, best(votes)?)));
        ConnectedPairs { sender: sender.collect() }
    }

    /// Returns the queue pair that sent a packet; `None` if the captures do not show it.
    pub(super) fn sender(&self, one: &Sighting) -> Option<u32> {
        let of_datagram = one.datagram.as_ref().map(|datagram| datagram.from_qpn);
        of_datagram.or_else(|| self.sender.get(&((one.source, one.destination), one.qpn)).copied())
    }
}

/// An address, and the capture taken at its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vantage {
    /// Index of the capture.
    pub(super) capture: usize,
    pub(super) address: IpAddr,
    /// The capture says which packets left here and which arrived here; otherwise it shows them on their way.
    pub(super) knows_directions: bool,
}

/// The relation of a packet to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenDirection {
    Sent,
    Received,
}

impl Vantage {
    /// Returns how the address saw a packet of this capture; `None` if the packet belongs to another address,
    /// or did not arrive.
    pub(super) fn seen(&self, one: &Sighting) -> Option<SeenDirection> {
        let (is_source, is_destination) = (one.source == self.address, one.destination == self.address);
        match (self.knows_directions, one.is_outbound) {
            (true, Some(true)) => is_source.then_some(SeenDirection::Sent),
            (true, _) => (is_destination && one.is_outbound.is_some()).then_some(SeenDirection::Received),
            // A packet from an address to itself appears once: where it was sent.
            (false, _) if is_source => Some(SeenDirection::Sent),
            (false, _) => (is_destination && !one.is_lost).then_some(SeenDirection::Received),
        }
    }
}

/// Finds the homes of all addresses. If no capture says that an address's packets are its own, the home is
/// the capture with most of the packets that the address sent: lost ones are in the sender's capture only.
pub(super) fn vantages(captures: &[Vec<Sighting>]) -> BTreeSet<Vantage> {
    let mut vantages = BTreeSet::new();
    for (capture, seen) in captures.iter().enumerate() {
        for one in seen {
            let address = match one.is_outbound {
                Some(true) => one.source,
                Some(false) => one.destination,
                None => continue,
            };
            vantages.insert(Vantage { capture, address, knows_directions: true });
        }
    }
    let owned: BTreeSet<IpAddr> = vantages.iter().map(|vantage| vantage.address).collect();
    let mut hosted = vec![0_usize; captures.len()];
    for (address, sent) in sent_in_captures(captures) {
        if owned.contains(&address) {
            continue;
        }
        let candidates = || sent.iter().zip(&hosted).enumerate();
        // Of two captures with as many packets, the one that is the home of fewer other addresses wins.
        let best = candidates().max_by_key(|(capture, (sent, hosted))| {
            (**sent, std::cmp::Reverse(**hosted), std::cmp::Reverse(*capture))
        });
        let Some((capture, _)) = best else { continue };
        if let Some(count) = hosted.get_mut(capture) {
            *count += 1;
        }
        vantages.insert(Vantage { capture, address, knows_directions: false });
    }
    vantages
}

/// Counts, for each address, the packets that it sent in each capture. Addresses that only receive are
/// included.
fn sent_in_captures(captures: &[Vec<Sighting>]) -> BTreeMap<IpAddr, Vec<usize>> {
    let mut counts = BTreeMap::<IpAddr, Vec<usize>>::new();
    for (capture, seen) in captures.iter().enumerate() {
        for one in seen {
            for (address, step) in [(one.source, 1), (one.destination, 0)] {
                let counts = counts.entry(address).or_insert_with(|| vec![0; captures.len()]);
                if let Some(count) = counts.get_mut(capture) {
                    *count += step;
                }
            }
        }
    }
    counts
}

/// Maximum number of packets of all captures of a timeline; each takes some 200 bytes.
const MAX_PACKETS: usize = 4_000_000;
/// Maximum number of addresses of all captures, and of their queue pairs, because each queue pair is compared
/// with all others.
const MAX_ADDRESSES: usize = 1024;
const MAX_QUEUE_PAIRS: usize = 1 << 14;
/// Maximum duration of a capture, in ns: 146 years. Times beyond are damage.
const MAX_SPAN_NS: u64 = 1 << 62;
/// Length of the ICRC, in bytes: the part of a packet that is neither header nor payload.
const ICRC_BYTES: usize = 4;

/// A queue pair that is being built.
#[derive(Debug, Default)]
struct QueuePairBuilder {
    qp: TracedQueuePair,
    messages: MessageTracker,
    paths: HashMap<(IpAddr, IpAddr), u32>,
}

/// An address whose process is being built.
#[derive(Debug)]
struct ProcessBuilder {
    vantage: Vantage,
    process: TimelineProcess,
    builders: Vec<QueuePairBuilder>,
    /// Indices of queue pairs in `builders` by their numbers.
    indices: HashMap<u32, usize>,
}

/// Returns the processes of captures, given their names and contents.
///
/// # Errors
/// A sentence about the capture of this name: it cannot be read, or holds no RoCE packet.
pub(crate) fn processes(
    captures: Vec<(String, impl Read)>,
) -> Result<Vec<TimelineProcess>, (String, String)> {
    let (mut names, mut all, mut room) = (Vec::new(), Vec::new(), MAX_PACKETS);
    for (name, input) in captures {
        let seen = match all_sightings(input, room) {
            Ok(seen) if seen.is_empty() => return Err((name, "it holds no RoCE packet".to_owned())),
            Ok(seen) => seen,
            Err(why) => return Err((name, why)),
        };
        room = room.saturating_sub(seen.len());
        names.push(name);
        all.push(seen);
    }
    let vantages = vantages(&all);
    if vantages.len() > MAX_ADDRESSES {
        let name = names.pop().unwrap_or_default();
        return Err((name, format!("there are packets of more than {MAX_ADDRESSES} addresses: filter it")));
    }
    let pairs = ConnectedPairs::of(&all);
    let (mut processes, mut queue_pairs) = (Vec::new(), 0);
    for (capture, (name, seen)) in names.into_iter().zip(&all).enumerate() {
        let first_ns = seen.iter().map(|one| one.time_ns).min().unwrap_or(0);
        let mut here = BTreeMap::new();
        for vantage in vantages.iter().filter(|vantage| vantage.capture == capture) {
            here.insert(vantage.address, ProcessBuilder::new(*vantage, header(vantage, &name, first_ns)));
        }
        for one in seen {
            let at_ns = one.time_ns.saturating_sub(first_ns).min(MAX_SPAN_NS);
            let other = (one.destination != one.source).then_some(one.destination);
            for address in [Some(one.source), other].into_iter().flatten() {
                let Some(builder) = here.get_mut(&address) else { continue };
                queue_pairs += usize::from(builder.take(at_ns, one, pairs.sender(one)));
            }
            if queue_pairs > MAX_QUEUE_PAIRS {
                return Err((name, format!("there are more than {MAX_QUEUE_PAIRS} queue pairs: filter it")));
            }
        }
        processes.extend(here.into_values().map(ProcessBuilder::finish));
    }
    Ok(processes)
}

/// Returns the header that a trace of this address would have.
fn header(vantage: &Vantage, name: &str, first_ns: u64) -> TraceHeader {
    TraceHeader {
        monotonic_base_ns: first_ns,
        wall_base_ns: first_ns,
        // Each capture has a clock of its own.
        boot: format!("capture {}", vantage.capture),
        program: vantage.address.to_string(),
        tag: name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        addresses: vec![vantage.address],
        ..TraceHeader::default()
    }
}

impl ProcessBuilder {
    fn new(vantage: Vantage, header: TraceHeader) -> ProcessBuilder {
        let process = TimelineProcess { header, span_ns: (u64::MAX, 0), ..TimelineProcess::default() };
        ProcessBuilder { vantage, process, builders: Vec::new(), indices: HashMap::new() }
    }

    /// Adds a packet of this capture; returns true if it is the first one of a queue pair.
    fn take(&mut self, at_ns: u64, one: &Sighting, sender: Option<u32>) -> bool {
        let Some(what) = self.vantage.seen(one) else { return false };
        let span = &mut self.process.span_ns;
        *span = (span.0.min(at_ns), span.1.max(at_ns));
        let own = if what == SeenDirection::Sent { sender.unwrap_or(0) } else { one.qpn };
        let index = *self.indices.entry(own).or_insert(self.builders.len());
        let is_new = index == self.builders.len();
        if is_new {
            let service = service(one).to_owned();
            let qp =
                TracedQueuePair { ordinal: index as u32, qpn: own, service, ..TracedQueuePair::default() };
            self.builders.push(QueuePairBuilder { qp, ..QueuePairBuilder::default() });
        }
        if let Some(builder) = self.builders.get_mut(index) {
            builder.take(at_ns, what, one, sender);
        }
        is_new
    }

    fn finish(self) -> TimelineProcess {
        let finished =
            |builder: QueuePairBuilder| TracedQueuePair { messages: builder.messages.finish(), ..builder.qp };
        TimelineProcess { queue_pairs: self.builders.into_iter().map(finished).collect(), ..self.process }
    }
}

/// Returns the name that verbs use for a service.
fn service(one: &Sighting) -> &'static str {
    match one.numbered() {
        Some(service) => service,
        None if one.info.service.has_messages() => one.info.service.name(),
        None => "",
    }
}

impl QueuePairBuilder {
    fn take(&mut self, at_ns: u64, what: SeenDirection, one: &Sighting, sender: Option<u32>) {
        let is_sent = what == SeenDirection::Sent;
        let is_connected = !one.info.service.is_datagram();
        let other = if is_sent { (one.destination, Some(one.qpn)) } else { (one.source, sender) };
        if let (true, (address, Some(qpn))) = (is_connected, other) {
            self.qp.peer = Some((address, qpn));
        }
        let next = self.paths.len() as u32;
        let path = *self.paths.entry((one.source, one.destination)).or_insert(next);
        if path == next {
            self.qp.paths.push((one.source, one.destination));
        }
        let (mut message, mut transmission, side) = (0, 1, u8::from(!one.info.is_request));
        // A datagram of SRD or DC is only a part of a message.
        if is_sent && one.info.is_request && one.numbered().is_none() {
            (message, transmission) = self.messages.sent(at_ns, one);
        } else if !is_sent && !one.info.is_request {
            self.messages.answered(at_ns, one);
            self.refused(at_ns, one);
        }
        let length = one.info.header_bytes + one.payload_bytes + ICRC_BYTES;
        self.qp.packets.push(TracedPacket {
            at_ns,
            is_sent,
            is_lost: one.is_lost,
            is_dropped: !is_sent && one.is_damaged,
            side,
            opcode: one.info.opcode.byte(),
            psn: one.psn,
            length: length as u32,
            transmission,
            message,
            other_qpn: match (is_sent, is_connected) {
                (true, _) => one.qpn,
                (false, true) => 0,
                (false, false) => sender.unwrap_or(0),
            },
            path: Some(path),
        });
    }

    /// Adds a NAK as a moment of the queue pair that receives it.
    fn refused(&mut self, at_ns: u64, one: &Sighting) {
        let Some((byte, _)) = one.answer else { return };
        let text = match Syndrome::from_byte(byte) {
            Syndrome::RnrNak { .. } => {
                self.qp.rnr_naks_ns.push(at_ns);
                format!("an RNR NAK came for PSN {}", one.psn)
            }
            Syndrome::Nak(code) => format!("a NAK came for PSN {}: {code:?}", one.psn),
            _ => return,
        };
        self.qp.moments.push(TimelineEvent { at_ns, kind: TimelineEventKind::Refusal, text });
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;

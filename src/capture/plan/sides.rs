//! The packets of a capture, and those seen where they were sent matched with those seen where they arrived.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Read;
use std::net::IpAddr;

use pumice_transport::mad::CmMessage;
use pumice_transport::wire::OpcodeInfo;

use crate::capture::decode::{Decoded, decode};
use crate::capture::file::{Frame, FrameError, for_each_frame};
use crate::capture::record::{Icrc, Record};

/// Maximum number of packets that are read; a capture may have any number.
pub(super) const MAX_PACKETS: usize = 20_000_000;

/// A packet as one capture has it.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    /// Index of the capture among those of a record; otherwise 0.
    pub(crate) capture: usize,
    pub(crate) time_ns: u64,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Queue pair that the packet is addressed to.
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) info: &'static OpcodeInfo,
    pub(crate) payload_bytes: usize,
    /// Address and length of the memory that a request names.
    pub(crate) memory: Option<(u64, u32)>,
    /// Syndrome and message sequence number of an answer.
    pub(crate) answer: Option<(u8, u32)>,
    pub(crate) is_damaged: bool,
    /// A fault plan lost the packet: it was not on the network.
    pub(crate) is_lost: bool,
    /// A fault plan applied to the packet.
    pub(crate) is_planned: bool,
    /// Direction, if the capture has it: true if the packet was captured where it was sent.
    pub(crate) is_outbound: Option<bool>,
    /// Properties of a datagram, if it is one.
    pub(crate) datagram: Option<DatagramInfo>,
}

/// The properties that a datagram has and packets of connections do not have.
#[derive(Debug, Clone)]
pub(crate) struct DatagramInfo {
    /// Queue pair that sent the datagram.
    pub(crate) from_qpn: u32,
    /// Name of a service whose messages are sent as datagrams: "SRD", "DC".
    pub(crate) numbered: Option<&'static str>,
    /// Digest of the payload.
    pub(crate) digest: u64,
    /// The message of connection management in the datagram.
    pub(crate) message: Option<Box<CmMessage>>,
}

/// Returns the packets of connections and the datagrams of a capture, in order.
///
/// # Errors
/// The reason why the capture cannot be read.
pub(super) fn sightings(input: impl Read) -> Result<Vec<Sighting>, String> {
    all_sightings(input, MAX_PACKETS)
}

/// Returns all packets of a capture, in order, at most `most` of them.
///
/// # Errors
/// The reason why the capture cannot be read.
pub(crate) fn all_sightings(input: impl Read, most: usize) -> Result<Vec<Sighting>, String> {
    let mut all = Vec::new();
    let read = for_each_frame(input, |frame| {
        if let Decoded::Roce(records) = decode(frame) {
            all.extend(records.iter().filter_map(|record| sighting(frame, record)));
        }
        if all.len() > most {
            return Err(format!("there are more than {most} packets: cut it into parts"));
        }
        Ok(())
    });
    match read {
        Ok(()) => Ok(all),
        // A capture that is being written may end anywhere.
        Err(FrameError::Broken(_)) if !all.is_empty() => Ok(all),
        Err(FrameError::Broken(what) | FrameError::Callback(what)) => Err(what),
    }
}

impl Sighting {
    /// Returns the name of the service if its messages are sent as datagrams, which are parts of messages and
    /// answers.
    pub(crate) fn numbered(&self) -> Option<&'static str> {
        self.datagram.as_ref()?.numbered
    }
}

fn sighting(frame: &Frame<'_>, record: &Record) -> Option<Sighting> {
    let headers = record.headers.wire()?;
    let info = headers.bth.opcode.info()?;
    let is_known = info.service.has_messages();
    is_known.then(|| Sighting {
        capture: 0,
        time_ns: record.time_ns,
        source: record.source,
        destination: record.destination,
        qpn: record.qpn,
        psn: record.psn,
        info,
        payload_bytes: record.payload_bytes,
        memory: headers.reth.map(|reth| (reth.address, reth.length)),
        answer: headers.aeth.map(|aeth| (aeth.syndrome, aeth.msn)),
        is_damaged: matches!(record.icrc, Icrc::Bad { .. }),
        is_lost: record.is_lost(),
        is_planned: record.is_planned(),
        is_outbound: frame.is_outbound,
        datagram: headers.deth.map(|deth| DatagramInfo {
            from_qpn: deth.source.value(),
            numbered: record.part.as_ref().map(|part| part.0.service),
            digest: record.digest,
            message: record.message.clone(),
        }),
    })
}

/// Maximum number of later packets among which one packet is searched.
const REORDER_WINDOW: usize = 64;

/// The packets of all captures, by where they were seen.
pub(super) struct CaptureSides<'a> {
    sent: BTreeMap<IpAddr, Vec<&'a Sighting>>,
    arrived: BTreeMap<IpAddr, Vec<&'a Sighting>>,
    knows_directions: bool,
}

impl<'a> CaptureSides<'a> {
    pub(super) fn of(captures: &'a [Vec<Sighting>]) -> CaptureSides<'a> {
        let mut sides =
            CaptureSides { sent: BTreeMap::new(), arrived: BTreeMap::new(), knows_directions: true };
        // The packets of each source in each capture.
        let mut sources: BTreeMap<IpAddr, Vec<Vec<&'a Sighting>>> = BTreeMap::new();
        for (index, capture) in captures.iter().enumerate() {
            for one in capture {
                let seen = sources.entry(one.source).or_insert_with(|| vec![Vec::new(); captures.len()]);
                if let Some(seen) = seen.get_mut(index) {
                    seen.push(one);
                }
            }
        }
        for (source, mut seen) in sources {
            let all = || seen.iter().flatten().copied();
            if all().any(|one| one.is_outbound.is_some()) {
                let is = |outbound| all().filter(|one| one.is_outbound == Some(outbound)).collect();
                sides.sent.insert(source, is(true));
                sides.arrived.insert(source, is(false));
                continue;
            }
            sides.knows_directions = false;
            // Lost packets are in the sender's capture only, so that capture has the most.
            seen.sort_by_key(|seen| std::cmp::Reverse(seen.len()));
            let mut seen = seen.into_iter();
            sides.sent.insert(source, seen.next().unwrap_or_default());
            sides.arrived.insert(source, seen.next().unwrap_or_default());
        }
        sides
    }

    /// Returns the addresses that sent something.
    pub(super) fn sources(&self) -> impl Iterator<Item = IpAddr> {
        self.sent.iter().filter(|(_, sent)| !sent.is_empty()).map(|(source, _)| *source)
    }

    /// Returns the packets that this address sent.
    pub(super) fn sent(&self, source: IpAddr) -> &[&'a Sighting] {
        self.sent.get(&source).map_or(&[], Vec::as_slice)
    }

    /// Returns the packets of this address that were seen where they arrived.
    pub(super) fn arrived(&self, source: IpAddr) -> &[&'a Sighting] {
        self.arrived.get(&source).map_or(&[], Vec::as_slice)
    }

    /// Reports whether the captures have the direction of packets.
    pub(super) const fn know_directions(&self) -> bool {
        self.knows_directions
    }

    /// Reports whether, for every address that sends, packets were seen where they arrived.
    pub(super) fn have_arrivals(&self) -> bool {
        self.sources().all(|source| !self.arrived(source).is_empty())
    }
}

/// The outcome of a packet that was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PacketOutcome {
    /// Index of its arrival among the arrivals of its stream.
    pub(super) arrived_at: Option<usize>,
    /// The packet arrived damaged.
    pub(super) is_damaged: bool,
    /// Number of additional copies that arrived.
    pub(super) copies: u8,
    /// Number of packets that were sent later and arrived before it.
    pub(super) overtaken_by: u16,
    /// Time by which it took longer than the fastest packet of the stream, in ns.
    pub(super) late_ns: u64,
}

/// The RNR NAKs that arrived for the requests of a stream: the codes of their timers, in order, by PSN.
pub(super) type NotReady = HashMap<u32, VecDeque<u8>>;

/// Packets of one queue pair of an address, in the order of sending.
pub(super) struct PacketStream<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// Queue pair that the packets are addressed to.
    pub(super) qpn: u32,
    /// Queue pair that sends the packets, if it was noted.
    pub(super) own_qpn: Option<u32>,
    /// Number of queue pairs of the source that were seen sending before.
    pub(super) ordinal: u32,
    pub(super) sent: Vec<&'a Sighting>,
    /// Outcome of each packet; `None` if only the sender's side is known.
    pub(super) outcomes: Option<Vec<PacketOutcome>>,
}

/// Returns the streams of an address, in the order in which they were first seen.
pub(super) fn streams<'a>(sides: &CaptureSides<'a>, source: IpAddr) -> Vec<PacketStream<'a>> {
    let mut indices: HashMap<(IpAddr, u32), usize> = HashMap::new();
    let mut streams: Vec<PacketStream<'a>> = Vec::new();
    for one in sides.sent(source) {
        let index = *indices.entry((one.destination, one.qpn)).or_insert(streams.len());
        if index == streams.len() {
            streams.push(PacketStream {
                source,
                destination: one.destination,
                qpn: one.qpn,
                own_qpn: None,
                ordinal: u32::try_from(index).unwrap_or(u32::MAX),
                sent: Vec::new(),
                outcomes: None,
            });
        }
        if let Some(stream) = streams.get_mut(index) {
            stream.sent.push(one);
        }
    }
    let mut arrived: HashMap<(IpAddr, u32), Vec<&Sighting>> = HashMap::new();
    for one in sides.arrived(source) {
        arrived.entry((one.destination, one.qpn)).or_default().push(one);
    }
    if !sides.arrived(source).is_empty() {
        for stream in &mut streams {
            let arrived = arrived.remove(&(stream.destination, stream.qpn)).unwrap_or_default();
            stream.outcomes = Some(outcomes(&stream.sent, &arrived));
        }
    }
    streams
}

/// The properties by which two sightings are the same packet, or two transmissions of it.
type PacketSignature = (u32, u8, usize, Option<(u8, u32)>, Option<u64>);

fn signature(one: &Sighting) -> PacketSignature {
    let digest = one.datagram.as_ref().map(|datagram| datagram.digest);
    (one.psn, one.info.opcode.byte(), one.payload_bytes, one.answer, digest)
}

/// Matches each arrival with what was sent.
pub(super) fn outcomes(sent: &[&Sighting], arrived: &[&Sighting]) -> Vec<PacketOutcome> {
    let mut indices: HashMap<PacketSignature, Vec<usize>> = HashMap::new();
    for (index, one) in sent.iter().enumerate().filter(|(_, one)| !one.is_lost) {
        indices.entry(signature(one)).or_default().push(index);
    }
    let offset_ns = clock_offset_ns(sent, arrived, &indices);
    let mut outcomes = vec![PacketOutcome::default(); sent.len()];
    for (position, arrival) in arrived.iter().enumerate() {
        let Some(indices) = indices.get(&signature(arrival)) else { continue };
        let is_free = |index: &&usize| outcomes.get(**index).is_some_and(|one| one.arrived_at.is_none());
        let apart_ns = |index: &&usize| {
            let sent_ns = sent.get(**index).map_or(0, |one| i128::from(one.time_ns));
            (sent_ns + offset_ns - i128::from(arrival.time_ns)).abs()
        };
        // Of several transmissions, the one sent nearest in time is chosen, because a sender waits before it
        // sends again. A packet that is seen once more than it was sent was duplicated.
        let chosen = indices.iter().filter(is_free).min_by_key(apart_ns).copied();
        let outcome = chosen.or(indices.last().copied()).and_then(|index| outcomes.get_mut(index));
        let Some(outcome) = outcome else { continue };
        if chosen.is_none() {
            // A packet that one process forwards to another one with the same address is seen at both, and is
            // no copy.
            let first = outcome.arrived_at.and_then(|position| arrived.get(position));
            if first.is_none_or(|first| first.capture == arrival.capture) {
                outcome.copies = outcome.copies.saturating_add(1);
            }
            continue;
        }
        (outcome.arrived_at, outcome.is_damaged) = (Some(position), arrival.is_damaged);
    }
    indices.values().for_each(|indices| in_order(indices, &mut outcomes));
    count_overtaking(&mut outcomes, arrived);
    for (one, outcome) in sent.iter().zip(&mut outcomes) {
        if let Some(arrival) = outcome.arrived_at.and_then(|index| arrived.get(index)) {
            let late_ns = i128::from(arrival.time_ns) - i128::from(one.time_ns) - offset_ns;
            outcome.late_ns = u64::try_from(late_ns).unwrap_or(0);
        }
    }
    outcomes
}

/// Matches arrivals of one packet's transmissions in order: they are alike, so the first arrival is taken for
/// the first transmission.
fn in_order(indices: &[usize], outcomes: &mut [PacketOutcome]) {
    let arrived = |outcomes: &[PacketOutcome]| -> Vec<(usize, PacketOutcome)> {
        let known = indices.iter().filter_map(|index| Some((*index, *outcomes.get(*index)?)));
        known.filter(|(_, outcome)| outcome.arrived_at.is_some()).collect()
    };
    let found = arrived(outcomes);
    let mut sorted: Vec<PacketOutcome> = found.iter().map(|(_, outcome)| *outcome).collect();
    sorted.sort_by_key(|outcome| outcome.arrived_at);
    for ((index, _), outcome) in found.into_iter().zip(sorted) {
        if let Some(slot) = outcomes.get_mut(index) {
            *slot = outcome;
        }
    }
}

/// Estimates how far the clock of the arrivals is ahead, including the fastest way, from packets that were
/// sent and arrived once.
fn clock_offset_ns(
    sent: &[&Sighting],
    arrived: &[&Sighting],
    indices: &HashMap<PacketSignature, Vec<usize>>,
) -> i128 {
    let mut times: HashMap<PacketSignature, (u32, u64)> = HashMap::new();
    for arrival in arrived {
        let entry = times.entry(signature(arrival)).or_insert((0, arrival.time_ns));
        entry.0 += 1;
    }
    let offsets = times.iter().filter(|(_, (count, _))| *count == 1).filter_map(|(like, (_, time_ns))| {
        let [index] = indices.get(like)?.as_slice() else { return None };
        Some(i128::from(*time_ns) - i128::from(sent.get(*index)?.time_ns))
    });
    offsets.min().unwrap_or(0)
}

/// Counts overtaking among arrivals at the same process only. Several processes may have the address, and the
/// order of arrivals at different ones is unknown.
fn count_overtaking(outcomes: &mut [PacketOutcome], arrived: &[&Sighting]) {
    let arrival_of = |position: usize| Some((arrived.get(position)?.capture, position));
    let arrival_positions: Vec<Option<(usize, usize)>> =
        outcomes.iter().map(|outcome| outcome.arrived_at.and_then(arrival_of)).collect();
    for (index, outcome) in outcomes.iter_mut().enumerate() {
        let Some((capture, own)) = outcome.arrived_at.and_then(arrival_of) else { continue };
        let later = arrival_positions.iter().skip(index + 1).take(REORDER_WINDOW).flatten();
        let overtook = later.filter(|(of, position)| *of == capture && *position < own);
        outcome.overtaken_by = u16::try_from(overtook.count()).unwrap_or(u16::MAX);
    }
}

#[cfg(test)]
#[path = "sides_tests.rs"]
mod tests;

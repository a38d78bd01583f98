//! Which packets were seen where they were sent, which where they arrived, and which of them are the same.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use super::sighting::Sighting;

/// Later packets that one packet is looked for behind.
const OVERTAKING: usize = 64;

/// Packets of all captures, by where they were seen.
pub(super) struct Sides<'a> {
    sent: BTreeMap<IpAddr, Vec<&'a Sighting>>,
    arrived: BTreeMap<IpAddr, Vec<&'a Sighting>>,
    knows_directions: bool,
}

impl<'a> Sides<'a> {
    pub(super) fn of(captures: &'a [Vec<Sighting>]) -> Sides<'a> {
        let mut sides = Sides { sent: BTreeMap::new(), arrived: BTreeMap::new(), knows_directions: true };
        // What each capture has of a source.
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
            // What was lost is in the capture of the sender only.
            seen.sort_by_key(|seen| std::cmp::Reverse(seen.len()));
            let mut seen = seen.into_iter();
            sides.sent.insert(source, seen.next().unwrap_or_default());
            sides.arrived.insert(source, seen.next().unwrap_or_default());
        }
        sides
    }

    /// The addresses that sent something.
    pub(super) fn sources(&self) -> impl Iterator<Item = IpAddr> {
        self.sent.iter().filter(|(_, sent)| !sent.is_empty()).map(|(source, _)| *source)
    }

    /// What this address sent.
    pub(super) fn sent(&self, source: IpAddr) -> &[&'a Sighting] {
        self.sent.get(&source).map_or(&[], Vec::as_slice)
    }

    /// What of that was seen where it arrived.
    pub(super) fn arrived(&self, source: IpAddr) -> &[&'a Sighting] {
        self.arrived.get(&source).map_or(&[], Vec::as_slice)
    }

    /// The captures say which way packets went.
    pub(super) const fn know_directions(&self) -> bool {
        self.knows_directions
    }

    /// Of every address that sends, packets were seen where they arrived.
    pub(super) fn have_arrivals(&self) -> bool {
        self.sources().all(|source| !self.arrived(source).is_empty())
    }
}

/// What became of a packet that was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Its index among the arrivals of its stream.
    pub(super) arrived_at: Option<usize>,
    /// It arrived damaged.
    pub(super) is_damaged: bool,
    /// It arrived so often besides.
    pub(super) copies: u8,
    /// So many packets that were sent later arrived before it.
    pub(super) overtaken_by: u16,
    /// So much longer than the fastest packet of the stream it was on its way.
    pub(super) late_ns: u64,
}

/// RNR NAKs that came for the requests of a stream: the codes of their timers, in order, by PSN.
pub(super) type NotReady = HashMap<u32, VecDeque<u8>>;

/// Packets of one queue pair of an address, in the order of sending.
pub(super) struct Stream<'a> {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// The queue pair that they are for.
    pub(super) qpn: u32,
    /// The queue pair that sends them, if that was noted.
    pub(super) own_qpn: Option<u32>,
    /// How many queue pairs of the source were seen sending before.
    pub(super) ordinal: u32,
    pub(super) sent: Vec<&'a Sighting>,
    /// What became of each; none if only the sender's side is known.
    pub(super) outcomes: Option<Vec<Outcome>>,
}

/// The streams of an address, in the order in which they were first seen.
pub(super) fn streams<'a>(sides: &Sides<'a>, source: IpAddr) -> Vec<Stream<'a>> {
    let mut indices: HashMap<(IpAddr, u32), usize> = HashMap::new();
    let mut streams: Vec<Stream<'a>> = Vec::new();
    for one in sides.sent(source) {
        let index = *indices.entry((one.destination, one.qpn)).or_insert(streams.len());
        if index == streams.len() {
            streams.push(Stream {
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

/// What makes two sightings one packet, or two transmissions of it.
type Likeness = (u32, u8, usize, Option<(u8, u32)>, Option<u64>);

fn likeness(one: &Sighting) -> Likeness {
    let digest = one.datagram.as_ref().map(|datagram| datagram.digest);
    (one.psn, one.info.opcode.byte(), one.payload_bytes, one.answer, digest)
}

/// Finds each arrival among what was sent.
pub(super) fn outcomes(sent: &[&Sighting], arrived: &[&Sighting]) -> Vec<Outcome> {
    let mut indices: HashMap<Likeness, Vec<usize>> = HashMap::new();
    for (index, one) in sent.iter().enumerate().filter(|(_, one)| !one.is_lost) {
        indices.entry(likeness(one)).or_default().push(index);
    }
    let offset_ns = clock_offset_ns(sent, arrived, &indices);
    let mut outcomes = vec![Outcome::default(); sent.len()];
    for (position, arrival) in arrived.iter().enumerate() {
        let Some(indices) = indices.get(&likeness(arrival)) else { continue };
        let is_free = |index: &&usize| outcomes.get(**index).is_some_and(|one| one.arrived_at.is_none());
        let apart_ns = |index: &&usize| {
            let sent_ns = sent.get(**index).map_or(0, |one| i128::from(one.time_ns));
            (sent_ns + offset_ns - i128::from(arrival.time_ns)).abs()
        };
        // Of several transmissions the one that left nearest in time, because a sender waits before it sends
        // again; a packet that is seen once more than it was sent was doubled.
        let chosen = indices.iter().filter(is_free).min_by_key(apart_ns).copied();
        let outcome = chosen.or(indices.last().copied()).and_then(|index| outcomes.get_mut(index));
        let Some(outcome) = outcome else { continue };
        if chosen.is_none() {
            // What a process hands on to another one that has the address is seen at both, and no copy.
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

/// Transmissions of one packet are alike, so the first that arrived is taken for the first.
fn in_order(indices: &[usize], outcomes: &mut [Outcome]) {
    let arrived = |outcomes: &[Outcome]| -> Vec<(usize, Outcome)> {
        let known = indices.iter().filter_map(|index| Some((*index, *outcomes.get(*index)?)));
        known.filter(|(_, outcome)| outcome.arrived_at.is_some()).collect()
    };
    let found = arrived(outcomes);
    let mut sorted: Vec<Outcome> = found.iter().map(|(_, outcome)| *outcome).collect();
    sorted.sort_by_key(|outcome| outcome.arrived_at);
    for ((index, _), outcome) in found.into_iter().zip(sorted) {
        if let Some(slot) = outcomes.get_mut(index) {
            *slot = outcome;
        }
    }
}

/// How far the clock of the arrivals is ahead, the fastest way included: from packets that were sent and
/// arrived once.
fn clock_offset_ns(
    sent: &[&Sighting],
    arrived: &[&Sighting],
    indices: &HashMap<Likeness, Vec<usize>>,
) -> i128 {
    let mut times: HashMap<Likeness, (u32, u64)> = HashMap::new();
    for arrival in arrived {
        let entry = times.entry(likeness(arrival)).or_insert((0, arrival.time_ns));
        entry.0 += 1;
    }
    let offsets = times.iter().filter(|(_, (count, _))| *count == 1).filter_map(|(like, (_, time_ns))| {
        let [index] = indices.get(like)?.as_slice() else { return None };
        Some(i128::from(*time_ns) - i128::from(sent.get(*index)?.time_ns))
    });
    offsets.min().unwrap_or(0)
}

/// Counts only what arrived at one process: several may have the address, and nothing is known of the order
/// of what arrived at different ones.
fn count_overtaking(outcomes: &mut [Outcome], arrived: &[&Sighting]) {
    let place = |position: usize| Some((arrived.get(position)?.capture, position));
    let places: Vec<Option<(usize, usize)>> =
        outcomes.iter().map(|outcome| outcome.arrived_at.and_then(place)).collect();
    for (index, outcome) in outcomes.iter_mut().enumerate() {
        let Some((capture, own)) = outcome.arrived_at.and_then(place) else { continue };
        let later = places.iter().skip(index + 1).take(OVERTAKING).flatten();
        let overtook = later.filter(|(of, position)| *of == capture && *position < own);
        outcome.overtaken_by = u16::try_from(overtook.count()).unwrap_or(u16::MAX);
    }
}

#[cfg(test)]
#[path = "sides_tests.rs"]
mod tests;

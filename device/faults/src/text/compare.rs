//! Reports of two runs compared: whether a rule did another thing to the same message, or the program sent
//! another message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::error::TextError;
use super::ordinal::OrdinalField;
use super::report::{PacketLine, ReportLine, lines};

/// How two reports differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Difference {
    /// A rule did another thing to the same message, as far as the reports show.
    Fate {
        /// What the first report says and the other one does not.
        first: Option<String>,
        /// What the other report says and the first one does not.
        other: Option<String>,
    },
    /// The process sent another message, or none, in this direction.
    Message {
        /// Whose: process, queue pair, kind of traffic.
        direction: String,
        /// The first message of the first report that differs; `None`: it has no more.
        first: Option<String>,
        /// The message of the other report at that index; `None`: it has no more.
        other: Option<String>,
        /// Fates of that message and of later ones that differ with it.
        fates: usize,
    },
}

/// What two reports say of the same plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Sorted, they are equal byte by byte.
    pub is_same: bool,
    /// How they differ; empty if it is only in what timing alone brings about.
    pub differences: Vec<Difference>,
    /// Both say which messages there were: a rule of the kind `note` was in the plan.
    pub has_notes: bool,
}

/// Packets whose order among each other is the same in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Direction {
    tag: String,
    device: Option<String>,
    service: String,
    qp: OrdinalField,
    connection: OrdinalField,
    traffic: &'static str,
    peer: Option<IpAddr>,
    destination: u32,
}

/// Where a packet stands in its direction, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    packet: u64,
    message: u64,
    transmission: u32,
    opcode: String,
    bytes: Option<u32>,
}

/// What a report says of one direction.
#[derive(Debug, Default)]
struct Told {
    notes: Vec<Spot>,
    /// What rules did otherwise: the line, and where its packet stands.
    fates: BTreeMap<String, Spot>,
}

/// A report, taken apart.
#[derive(Debug, Default)]
struct ParsedReport {
    directions: BTreeMap<Direction, Told>,
    /// Lines that are about no packet, and their process.
    others: BTreeMap<String, Option<String>>,
}

/// How the other report differs from the first.
///
/// # Errors
/// A line is none of a report. The number in front says of which one: 0 or 1.
pub fn compare(first: &str, other: &str) -> Result<Comparison, (usize, TextError)> {
    let reports =
        (ParsedReport::of(first).map_err(|e| (0, e))?, ParsedReport::of(other).map_err(|e| (1, e))?);
    let has_notes = reports.0.has_notes() && reports.1.has_notes();
    if sorted(first) == sorted(other) {
        return Ok(Comparison { is_same: true, differences: Vec::new(), has_notes });
    }
    let (mut differences, mut parted) = (Vec::new(), BTreeSet::new());
    let nothing = Told::default();
    let directions: BTreeSet<&Direction> =
        reports.0.directions.keys().chain(reports.1.directions.keys()).collect();
    for direction in directions {
        let [one, two] = [&reports.0, &reports.1].map(|report| report.directions.get(direction));
        if direction.compare(one.unwrap_or(&nothing), two.unwrap_or(&nothing), &mut differences) {
            parted.insert(direction.tag.as_str());
        }
    }
    // What became of calls and completions follows from the messages.
    let is_due = |tag: &Option<String>| tag.as_deref().is_none_or(|tag| !parted.contains(tag));
    let only = |in_this: &ParsedReport, not_in: &ParsedReport| -> Vec<String> {
        let lines =
            in_this.others.iter().filter(|(line, tag)| !not_in.others.contains_key(*line) && is_due(tag));
        lines.map(|(line, _)| line.clone()).collect()
    };
    pair(only(&reports.0, &reports.1), only(&reports.1, &reports.0), &mut differences);
    Ok(Comparison { is_same: false, differences, has_notes })
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Lines that only one report has.
fn pair(first: Vec<String>, other: Vec<String>, differences: &mut Vec<Difference>) {
    differences.extend(first.into_iter().map(|line| Difference::Fate { first: Some(line), other: None }));
    differences.extend(other.into_iter().map(|line| Difference::Fate { first: None, other: Some(line) }));
}

impl ParsedReport {
    fn of(text: &str) -> Result<ParsedReport, TextError> {
        let mut report = ParsedReport::default();
        let parsed = lines(text)?.into_iter().map(|(_, line)| line);
        for (raw, line) in text.lines().filter(|line| !line.trim().is_empty()).zip(parsed) {
            report.take(raw, line);
        }
        for told in report.directions.values_mut() {
            told.notes.sort_unstable();
        }
        Ok(report)
    }

    fn take(&mut self, raw: &str, line: ReportLine) {
        let tag = match line {
            ReportLine::Packet(packet) => {
                let Some(direction) = Direction::of(&packet) else { return };
                let told = self.directions.entry(direction).or_default();
                let spot = Spot::of(&packet);
                if packet.bytes.is_some() {
                    told.notes.push(spot);
                } else {
                    told.fates.insert(raw.to_owned(), spot);
                }
                return;
            }
            // It follows from the rest, and a process that is killed leaves none.
            ReportLine::End { .. } => return,
            // When these happen is not the same in every run.
            ReportLine::CompletionEvent(_) | ReportLine::Live(_) => return,
            ReportLine::Begin { .. } => None,
            ReportLine::Call(line) => Some(line.tag),
            ReportLine::Completion(line) => Some(line.tag),
        };
        self.others.insert(raw.to_owned(), tag);
    }

    fn has_notes(&self) -> bool {
        self.directions.values().any(|told| !told.notes.is_empty())
    }
}

impl Direction {
    /// `None`: whether there is such a packet depends on time.
    fn of(packet: &PacketLine) -> Option<Direction> {
        let traffic = match (packet.opcode.as_str(), packet.side.as_str()) {
            ("nak" | "rnr-nak" | "cnp" | "mra", _) => return None,
            ("ack", _) => "acknowledgements",
            ("read-response" | "atomic-response", _) => "answers",
            (_, "requester") => "requests",
            _ => "answers",
        };
        Some(Direction {
            tag: packet.tag.clone(),
            device: packet.device.clone(),
            service: packet.service.clone(),
            qp: packet.qp,
            connection: packet.connection,
            traffic,
            peer: packet.peer,
            destination: packet.destination,
        })
    }

    /// Adds how two reports differ in this direction; true if the messages do.
    fn compare(&self, first: &Told, other: &Told, differences: &mut Vec<Difference>) -> bool {
        let indices = 0..first.notes.len().max(other.notes.len());
        let parting = indices
            .map(|index| (first.notes.get(index), other.notes.get(index)))
            .find(|(first, other)| first != other);
        let from =
            parting.and_then(|(first, other)| first.into_iter().chain(other).map(Spot::position).min());
        let is_before = |spot: &Spot| from.is_none_or(|from| spot.position() < from);
        let only = |this: &Told, not_in: &Told| -> (Vec<String>, usize) {
            let lines = this.fates.iter().filter(|(line, _)| !not_in.fates.contains_key(*line));
            let (before, beyond): (Vec<_>, Vec<_>) = lines.partition(|(_, spot)| is_before(spot));
            (before.into_iter().map(|(line, _)| line.clone()).collect(), beyond.len())
        };
        let (in_first, in_other) = (only(first, other), only(other, first));
        let fates = in_first.1 + in_other.1;
        pair(in_first.0, in_other.0, differences);
        if let Some((first, other)) = parting {
            let (first, other) = (first.map(Spot::to_string), other.map(Spot::to_string));
            differences.push(Difference::Message { direction: self.to_string(), first, other, fates });
        }
        parting.is_some()
    }
}

impl Spot {
    fn of(packet: &PacketLine) -> Spot {
        let PacketLine { packet: ordinal, message, transmission, bytes, .. } = *packet;
        Spot { packet: ordinal, message, transmission, opcode: packet.opcode.clone(), bytes }
    }

    const fn position(&self) -> (u64, u64, u32) {
        (self.packet, self.message, self.transmission)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Direction { tag, device, service, qp, connection, traffic, .. } = self;
        let device = device.as_ref().map(|device| format!(", {device}")).unwrap_or_default();
        write!(f, "{tag}{device}, {service}, queue pair {qp}, connection {connection}, {traffic}")?;
        self.peer.map_or(Ok(()), |peer| write!(f, " to {peer}, destination {}", self.destination))
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spot { packet, message, transmission, opcode, bytes } = self;
        write!(f, "message {message} is {opcode} of {} bytes", bytes.unwrap_or(0))?;
        write!(f, " (packet {packet}, transmission {transmission})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rule: &str, position: (u64, u64, u32), opcode: &str, rest: &str) -> String {
        let (packet, message, transmission) = position;
        format!(
            "{{\"rule\":\"{rule}\",\"tag\":\"a\",\"service\":\"rc\",\"qp\":0,\"connection\":0,\
             \"side\":\"requester\",\"opcode\":\"{opcode}\",\"message\":{message},\"packet\":{packet},\
             \"transmission\":{transmission},{rest}}}\n"
        )
    }

    fn note(packet: u64, bytes: u32) -> String {
        line("all", (packet, packet, 1), "send", &format!("\"bytes\":{bytes}"))
    }

    fn loss(packet: u64) -> String {
        line("loss", (packet, packet, 1), "send", "\"lost\":true")
    }

    #[test]
    fn the_same_lines_in_another_order_are_the_same() {
        let (one, two) = (note(0, 60) + &loss(0) + &note(1, 60), loss(0) + &note(1, 60) + &note(0, 60));
        assert!(compare(&one, &two).unwrap().is_same);
    }

    #[test]
    fn another_message_is_named_and_explains_what_follows() {
        let one = note(0, 60) + &note(1, 60) + &note(2, 60) + &loss(1);
        let two = note(0, 60) + &note(1, 90) + &note(2, 60) + &loss(2);
        let found = compare(&one, &two).unwrap();
        let [Difference::Message { direction, first, other, fates: 2 }] = &found.differences[..] else {
            panic!("{found:?}");
        };
        assert_eq!(direction, "a, rc, queue pair 0, connection 0, requests");
        assert_eq!(first.as_deref(), Some("message 1 is send of 60 bytes (packet 1, transmission 1)"));
        assert_eq!(other.as_deref(), Some("message 1 is send of 90 bytes (packet 1, transmission 1)"));
    }

    #[test]
    fn another_fate_before_the_first_other_message_is_a_defect() {
        // What the plan lost in one run is sent again there, and in the other run not.
        let one = note(0, 60) + &loss(0) + &line("all", (0, 0, 2), "send", "\"bytes\":60") + &note(1, 60);
        let two = note(0, 60) + &note(1, 60);
        let found = compare(&one, &two).unwrap();
        let fate = Difference::Fate { first: Some(loss(0).trim().to_owned()), other: None };
        assert_eq!(found.differences.first(), Some(&fate), "{found:?}");
    }

    #[test]
    fn without_notes_every_other_fate_counts() {
        let found = compare(&loss(0), &loss(1)).unwrap();
        assert!(!found.has_notes && !found.is_same);
        assert_eq!(found.differences.len(), 2);
    }

    #[test]
    fn what_timing_alone_brings_about_is_no_difference() {
        let nak = |message| line("naks", (0, message, 1), "nak", "\"lost\":true");
        let found = compare(&nak(1), &nak(2)).unwrap();
        assert_eq!((found.is_same, found.differences.len()), (false, 0));
    }
}

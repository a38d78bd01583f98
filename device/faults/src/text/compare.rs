//! Comparison of the reports of two runs: whether a rule did something else to the same message, or the
//! program sent another message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::fields::{OrdinalField, TextError};
use super::report::{PacketLine, ReportLine, lines};

/// A difference between two reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Difference {
    /// A rule did something else to the same message, as far as the reports show.
    Fate {
        /// The line that the first report has and the other one does not.
        first: Option<String>,
        /// The line that the other report has and the first one does not.
        other: Option<String>,
    },
    /// The process sent another message, or none, in this direction.
    Message {
        /// The direction: process, queue pair, kind of traffic.
        direction: String,
        /// The first message of the first report that differs; `None`: the report has no more messages.
        first: Option<String>,
        /// The message of the other report at that index; `None`: the report has no more messages.
        other: Option<String>,
        /// Number of fates of that message and of later ones that differ with it.
        fates: usize,
    },
}

/// The result of comparing two reports of the same plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// True if the sorted reports are equal byte by byte.
    pub is_same: bool,
    /// The differences; empty if the reports differ only in what timing alone decides.
    pub differences: Vec<Difference>,
    /// True if both reports say which messages there were: the plan had a rule of the kind `note`.
    pub has_notes: bool,
}

/// A direction of traffic: packets whose order among each other is the same in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TrafficDirection {
    tag: String,
    device: Option<String>,
    service: String,
    qp: OrdinalField,
    connection: OrdinalField,
    traffic: &'static str,
    peer: Option<IpAddr>,
    destination: u32,
}

/// The position of a packet in its direction, and its identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PacketPosition {
    packet: u64,
    message: u64,
    transmission: u32,
    opcode: String,
    bytes: Option<u32>,
}

/// The content of a report about one direction.
#[derive(Debug, Default)]
struct ReportedTraffic {
    notes: Vec<PacketPosition>,
    /// The lines of rules that did something, each with the position of its packet.
    fates: BTreeMap<String, PacketPosition>,
}

/// The content of a report, by direction.
#[derive(Debug, Default)]
struct ParsedReport {
    directions: BTreeMap<TrafficDirection, ReportedTraffic>,
    /// Lines that are about no packet, each with its process.
    others: BTreeMap<String, Option<String>>,
}

/// Compares two reports of the same plan.
///
/// # Errors
/// A line is none of a report. The number in front tells which report it is in: 0 or 1.
pub fn compare(first: &str, other: &str) -> Result<Comparison, (usize, TextError)> {
    let reports =
        (ParsedReport::of(first).map_err(|e| (0, e))?, ParsedReport::of(other).map_err(|e| (1, e))?);
    let has_notes = reports.0.has_notes() && reports.1.has_notes();
    if sorted(first) == sorted(other) {
        return Ok(Comparison { is_same: true, differences: Vec::new(), has_notes });
    }
    let (mut differences, mut parted) = (Vec::new(), BTreeSet::new());
    let nothing = ReportedTraffic::default();
    let directions: BTreeSet<&TrafficDirection> =
        reports.0.directions.keys().chain(reports.1.directions.keys()).collect();
    for direction in directions {
        let [one, two] = [&reports.0, &reports.1].map(|report| report.directions.get(direction));
        if direction.compare(one.unwrap_or(&nothing), two.unwrap_or(&nothing), &mut differences) {
            parted.insert(direction.tag.as_str());
        }
    }
    // What happened to calls and completions follows from the messages.
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

/// Adds a difference for each line that only one report has.
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
        for reported in report.directions.values_mut() {
            reported.notes.sort_unstable();
        }
        Ok(report)
    }

    fn take(&mut self, raw: &str, line: ReportLine) {
        let tag = match line {
            ReportLine::Packet(packet) => {
                let Some(direction) = TrafficDirection::of(&packet) else { return };
                let reported = self.directions.entry(direction).or_default();
                let spot = PacketPosition::of(&packet);
                if packet.bytes.is_some() {
                    reported.notes.push(spot);
                } else {
                    reported.fates.insert(raw.to_owned(), spot);
                }
                return;
            }
            // The line follows from the rest, and a process that is killed leaves none.
            ReportLine::End { .. } => return,
            // The time at which these happen is not the same in every run.
            ReportLine::CompletionEvent(_) | ReportLine::Live(_) => return,
            ReportLine::Begin { .. } => None,
            ReportLine::Call(line) => Some(line.tag),
            ReportLine::Completion(line) => Some(line.tag),
        };
        self.others.insert(raw.to_owned(), tag);
    }

    fn has_notes(&self) -> bool {
        self.directions.values().any(|reported| !reported.notes.is_empty())
    }
}

impl TrafficDirection {
    /// Returns the direction of a packet; `None` if the existence of the packet depends on time.
    fn of(packet: &PacketLine) -> Option<TrafficDirection> {
        let traffic = match (packet.opcode.as_str(), packet.side.as_str()) {
            ("nak" | "rnr-nak" | "cnp" | "mra", _) => return None,
            ("ack", _) => "acknowledgements",
            ("read-response" | "atomic-response", _) => "answers",
            (_, "requester") => "requests",
            _ => "answers",
        };
        Some(TrafficDirection {
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

    /// Adds the differences of two reports in this direction. Returns whether the messages differ.
    fn compare(
        &self,
        first: &ReportedTraffic,
        other: &ReportedTraffic,
        differences: &mut Vec<Difference>,
    ) -> bool {
        let indices = 0..first.notes.len().max(other.notes.len());
        let parting = indices
            .map(|index| (first.notes.get(index), other.notes.get(index)))
            .find(|(first, other)| first != other);
        let from = parting
            .and_then(|(first, other)| first.into_iter().chain(other).map(PacketPosition::position).min());
        let is_before = |spot: &PacketPosition| from.is_none_or(|from| spot.position() < from);
        let only = |this: &ReportedTraffic, not_in: &ReportedTraffic| -> (Vec<String>, usize) {
            let lines = this.fates.iter().filter(|(line, _)| !not_in.fates.contains_key(*line));
            let (before, beyond): (Vec<_>, Vec<_>) = lines.partition(|(_, spot)| is_before(spot));
            (before.into_iter().map(|(line, _)| line.clone()).collect(), beyond.len())
        };
        let (in_first, in_other) = (only(first, other), only(other, first));
        let fates = in_first.1 + in_other.1;
        pair(in_first.0, in_other.0, differences);
        if let Some((first, other)) = parting {
            let (first, other) = (first.map(PacketPosition::to_string), other.map(PacketPosition::to_string));
            differences.push(Difference::Message { direction: self.to_string(), first, other, fates });
        }
        parting.is_some()
    }
}

impl PacketPosition {
    fn of(packet: &PacketLine) -> PacketPosition {
        let PacketLine { packet: ordinal, message, transmission, bytes, .. } = *packet;
        PacketPosition { packet: ordinal, message, transmission, opcode: packet.opcode.clone(), bytes }
    }

    const fn position(&self) -> (u64, u64, u32) {
        (self.packet, self.message, self.transmission)
    }
}

impl fmt::Display for TrafficDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrafficDirection { tag, device, service, qp, connection, traffic, .. } = self;
        let device = device.as_ref().map(|device| format!(", {device}")).unwrap_or_default();
        write!(f, "{tag}{device}, {service}, queue pair {qp}, connection {connection}, {traffic}")?;
        self.peer.map_or(Ok(()), |peer| write!(f, " to {peer}, destination {}", self.destination))
    }
}

impl fmt::Display for PacketPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacketPosition { packet, message, transmission, opcode, bytes } = self;
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
        // What the plan lost in one run is sent again there, but not in the other run.
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

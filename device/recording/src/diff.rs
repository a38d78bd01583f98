//! Compares two runs of the same programs: what they posted, how it ended, what was repeated, the order of
//! completions, and the time by part.

use std::collections::BTreeMap;

use pumice_transport::types::{SendOpcode, WcStatus};
use serde::Serialize;

use super::timeline::{Message, Timeline, TimelineProcess, TracedQueuePair};
use super::why::{CauseGroup, Causes, PartKind, TimePart, time};

/// Maximum number of departures that are listed; further ones are only counted.
const MAX_DIVERGENCES: usize = 1000;
/// Factor by which a message has to take longer to depart in time.
const SLOWER: u64 = 4;
/// Additional time that a message has to take to depart in time, in ns.
const LONGER_NS: u64 = 1_000_000;
/// Maximum number of causes of each run that are compared.
const MAX_CAUSES: usize = 100;

/// The way in which a message departs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DivergenceKind {
    /// The message was posted in one run only, or with another operation or length.
    Posted,
    /// The message ended with another status.
    Ended,
    /// Packets of the message were sent again in one run only.
    Retried,
    /// The message completed before or after others than in the other run.
    Order,
    /// The message took much longer.
    Time,
}

/// A message that departs: one that the two runs handled differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The way in which the message departs.
    pub kind: DivergenceKind,
    /// Time at which the message was posted, in ns since the first trace of its run began; of the second run
    /// if it has the message.
    pub at_ns: u64,
    /// Tag of the process, by which fault plans name it.
    pub tag: String,
    /// Ordinal of the queue pair in the process.
    pub qp: u32,
    /// Ordinal of the message on its queue pair since the queue pair was reset.
    pub message: u64,
    /// A sentence that says how the message departs.
    pub sentence: String,
}

/// The differences between two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunDifferences {
    /// Number of messages in the first and in the second run.
    pub messages: [u64; 2],
    /// Messages that depart, the earliest one first.
    pub departures: Vec<Divergence>,
    /// Number of departures beyond those listed.
    pub more: u64,
    /// Time of all messages by part, in ns, in the first and in the second run.
    pub parts: Vec<(PartKind, [u64; 2])>,
    /// Causes that only one run has, as sentences: those of the first run, then those of the second.
    pub causes: [Vec<String>; 2],
}

impl RunDifferences {
    /// Compares two runs.
    pub fn between(first: &Timeline, second: &Timeline) -> RunDifferences {
        let mut all = RunDifferences { messages: [first, second].map(messages), ..RunDifferences::default() };
        let mut found = Vec::new();
        for (one, other) in pairs(first, second) {
            let is_part =
                |process: Option<&TimelineProcess>| process.is_some_and(|one| one.began_ns.is_some());
            let are_parts = is_part(one) || is_part(other);
            for (qp, other_qp) in queue_pairs(one, other) {
                compare(one.or(other), (qp, other_qp), are_parts, &mut found);
            }
        }
        order(first, second, &mut found);
        // A busy machine changes how long things take, so departures other than time come first.
        found
            .sort_by_key(|(turn, departure)| (departure.kind == DivergenceKind::Time, *turn, departure.kind));
        let mut found: Vec<Divergence> = found.into_iter().map(|(_, departure)| departure).collect();
        all.more = found.len().saturating_sub(MAX_DIVERGENCES) as u64;
        found.truncate(MAX_DIVERGENCES);
        all.departures = found;
        let sums = [first, second].map(sums);
        let sum = |kind: PartKind| sums.each_ref().map(|sums| sums.get(&kind).copied().unwrap_or(0));
        all.parts = PartKind::ALL.into_iter().map(|kind| (kind, sum(kind))).collect();
        all.parts.retain(|(_, both)| both.iter().any(|ns| *ns > 0));
        all.causes = causes(first, second);
        all
    }

    /// Reports whether the runs did the same: at most times depart.
    pub fn are_alike(&self) -> bool {
        self.departures.iter().all(|departure| departure.kind == DivergenceKind::Time)
    }
}

fn messages(timeline: &Timeline) -> u64 {
    let queue_pairs = timeline.processes.iter().flat_map(|process| &process.queue_pairs);
    queue_pairs.map(|qp| qp.messages.len() as u64).sum()
}

/// Pairs the processes of the two runs: the processes of one tag, in their order.
pub(super) fn pairs<'a>(
    first: &'a Timeline,
    second: &'a Timeline,
) -> Vec<(Option<&'a TimelineProcess>, Option<&'a TimelineProcess>)> {
    let mut by_tag: BTreeMap<(&str, usize), [Option<&TimelineProcess>; 2]> = BTreeMap::new();
    for (number, timeline) in [first, second].into_iter().enumerate() {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for process in &timeline.processes {
            let tag = process.header.tag.as_str();
            let count = seen.entry(tag).or_default();
            let entry = by_tag.entry((tag, *count)).or_default();
            *count += 1;
            if let Some(entry) = entry.get_mut(number) {
                *entry = Some(process);
            }
        }
    }
    by_tag.into_values().map(|[one, other]| (one, other)).collect()
}

pub(super) type QueuePairMatch<'a> = (Option<&'a TracedQueuePair>, Option<&'a TracedQueuePair>);

pub(super) fn queue_pairs<'a>(
    one: Option<&'a TimelineProcess>,
    other: Option<&'a TimelineProcess>,
) -> Vec<QueuePairMatch<'a>> {
    let mut both: BTreeMap<u32, [Option<&TracedQueuePair>; 2]> = BTreeMap::new();
    for (number, process) in [one, other].into_iter().enumerate() {
        for qp in process.map(|process| &process.queue_pairs).into_iter().flatten() {
            if let Some(entry) = both.entry(qp.ordinal).or_default().get_mut(number) {
                *entry = Some(qp);
            }
        }
    }
    both.into_values().map(|[one, other]| (one, other)).collect()
}

/// Returns the messages of `all` that have a counterpart among `others`, by their ordinals.
fn common<'a>(all: &'a [Message], others: &[Message]) -> &'a [Message] {
    let key = |message: &Message| (message.connection, message.number);
    let Some((first, last)) = others.first().map(key).zip(others.last().map(key)) else { return &[] };
    let from = all.partition_point(|message| key(message) < first);
    let to = all.partition_point(|message| key(message) <= last);
    all.get(from..to).unwrap_or_default()
}

/// Compares the messages of a queue pair. `are_parts`: a recording began or ended while its process ran, so
/// messages that it lacks may have been posted outside of the recording.
fn compare(
    process: Option<&TimelineProcess>,
    (one, other): QueuePairMatch<'_>,
    are_parts: bool,
    found: &mut Vec<(u64, Divergence)>,
) {
    let Some((process, qp)) = process.zip(one.or(other)) else { return };
    let empty: &[Message] = &[];
    let [mut a, mut b] = [one, other].map(|qp| qp.map_or(empty, |qp| qp.messages.as_slice()));
    if are_parts {
        (a, b) = (common(a, b), common(b, a));
    }
    // The two runs have two clocks: messages that only the first run posted are put after all of the second
    // run.
    let ended_ns = b.last().map_or(0, |message| message.posted_ns.saturating_add(1));
    let mut say = |turn, kind, message: &Message, sentence: String| {
        let departure = Divergence {
            kind,
            at_ns: message.posted_ns,
            tag: process.header.tag.clone(),
            qp: qp.ordinal,
            message: message.number,
            sentence,
        };
        found.push((turn, departure));
    };
    for index in 0..a.len().max(b.len()) {
        match (a.get(index), b.get(index)) {
            (Some(a), Some(b)) => {
                let (ours, theirs) = (posted(a), posted(b));
                if ours != theirs {
                    let sentence = format!("{ours} in the first run, {theirs} in the second");
                    say(b.posted_ns, DivergenceKind::Posted, b, sentence);
                    // From here on, messages of the same ordinal are not the same messages.
                    return;
                }
                let is_cut = are_parts && (a.end.is_none() || b.end.is_none());
                if let Some((kind, sentence)) = diverges(process, a, b).filter(|_| !is_cut) {
                    say(b.posted_ns, kind, b, sentence);
                }
            }
            (Some(_), None) | (None, Some(_)) if are_parts => return,
            (Some(a), None) => {
                let sentence = posted_more(index, a, "first", "second");
                say(a.posted_ns.max(ended_ns), DivergenceKind::Posted, a, sentence);
                return;
            }
            (None, Some(b)) => {
                let sentence = posted_more(index, b, "second", "first");
                say(b.posted_ns, DivergenceKind::Posted, b, sentence);
                return;
            }
            (None, None) => return,
        }
    }
}

/// Returns the sentence for a message that only one run posted.
fn posted_more(index: usize, message: &Message, has: &str, lacks: &str) -> String {
    format!("the {has} run posted it ({}), and the {lacks} run ended after {index} requests", posted(message))
}

/// Returns how a message of the second run departs from the same message of the first.
fn diverges(process: &TimelineProcess, a: &Message, b: &Message) -> Option<(DivergenceKind, String)> {
    let (ours, theirs) = (ended(a), ended(b));
    if ours != theirs {
        let sentence = format!("{ours} in the first run, {theirs} in the second");
        return Some((DivergenceKind::Ended, sentence));
    }
    let [(a_ns, _), (b_ns, parts)] = [a, b].map(|message| TimePart::of(process, message));
    let took = |ns: u64| time(ns);
    if a.transmissions.max(1) != b.transmissions.max(1) {
        let sentence = format!(
            "a packet of it was sent {} in the first run, {} in the second; it took {} and {}",
            times(a.transmissions),
            times(b.transmissions),
            took(a_ns),
            took(b_ns)
        );
        return Some((DivergenceKind::Retried, sentence));
    }
    let (less, more) = (a_ns.min(b_ns), a_ns.max(b_ns));
    if more > less.saturating_mul(SLOWER) && more - less > LONGER_NS {
        let parts = if b_ns > a_ns { parts } else { TimePart::of(process, a).1 };
        let most = parts
            .first()
            .map_or_else(String::new, |part| format!(": {} {}", took(part.ns), part.kind.words()));
        let sentence =
            format!("it took {} in the first run, and {} in the second{most}", took(a_ns), took(b_ns));
        return Some((DivergenceKind::Time, sentence));
    }
    None
}

fn times(count: u32) -> String {
    if count <= 1 { "once".to_owned() } else { format!("{count} times") }
}

fn posted(message: &Message) -> String {
    let known = SendOpcode::from_number(u32::from(message.opcode));
    let name = known.map_or_else(|| format!("operation {}", message.opcode), |known| known.name().to_owned());
    let signaled = if message.signaled { "" } else { ", unsignaled" };
    format!("{name} of {} B{signaled}", message.bytes)
}

fn ended(message: &Message) -> String {
    let Some(end) = message.end else { return "it had not ended".to_owned() };
    let known = WcStatus::ALL.into_iter().find(|known| *known as u8 == end.status);
    let name = known.map_or_else(|| format!("status {}", end.status), |known| known.name().to_owned());
    format!("it ended with {name}")
}

/// Finds where the order of completions, over all queue pairs of a process, first departs.
fn order(first: &Timeline, second: &Timeline, found: &mut Vec<(u64, Divergence)>) {
    for (one, other) in pairs(first, second) {
        let Some((one, other)) = one.zip(other) else { continue };
        if one.began_ns.is_some() || other.began_ns.is_some() {
            continue;
        }
        let [ours, theirs] = [one, other].map(completions);
        let differs = ours.iter().zip(&theirs).position(|(a, b)| (a.1, a.2) != (b.1, b.2));
        let Some(index) = differs else { continue };
        let (Some(ours), Some(theirs)) = (ours.get(index), theirs.get(index)) else { continue };
        let sentence = format!(
            "as completion {index} of the process, request {} of queue pair {} came in the first run, and \
             this one in the second",
            ours.2, ours.1
        );
        let departure = Divergence {
            kind: DivergenceKind::Order,
            at_ns: theirs.0,
            tag: other.header.tag.clone(),
            qp: theirs.1,
            message: theirs.2,
            sentence,
        };
        found.push((theirs.0, departure));
    }
}

/// Returns time, queue pair and ordinal of each request with a completion of its own, in the order of
/// completion.
fn completions(process: &TimelineProcess) -> Vec<(u64, u32, u64)> {
    let mut all = Vec::new();
    for qp in &process.queue_pairs {
        for message in &qp.messages {
            let end = message.end.filter(|end| end.has_completion);
            all.extend(end.map(|end| (end.at_ns, qp.ordinal, message.number)));
        }
    }
    all.sort_unstable();
    all
}

/// Sums the time of all messages by part.
fn sums(timeline: &Timeline) -> BTreeMap<PartKind, u64> {
    let mut sums = BTreeMap::new();
    for process in &timeline.processes {
        for message in process.queue_pairs.iter().flat_map(|qp| &qp.messages) {
            for part in TimePart::of(process, message).1 {
                let sum: &mut u64 = sums.entry(part.kind).or_default();
                *sum = sum.saturating_add(part.ns);
            }
        }
    }
    sums
}

/// Returns the causes that only one run has.
fn causes(first: &Timeline, second: &Timeline) -> [Vec<String>; 2] {
    let both = [first, second].map(|timeline| Causes::of(timeline, MAX_CAUSES).groups);
    let [ours, theirs] = &both;
    let alone = |own: &[CauseGroup], others: &[CauseGroup]| {
        let is_new = |one: &&CauseGroup| {
            let same =
                |other: &CauseGroup| other.cause.kind == one.cause.kind && other.cause.rule == one.cause.rule;
            !one.cause.kind.is_ordinary() && !others.iter().any(same)
        };
        own.iter().filter(is_new).map(|one| one.cause.sentence.clone()).collect()
    };
    [alone(ours, theirs), alone(theirs, ours)]
}

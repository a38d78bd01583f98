//! The story of one message: its time is attributed to the program, its device, the network, or the peer.

use std::fmt;

use pumice_transport::types::{SendOpcode, WcStatus};
use serde::Serialize;

use super::cause;
use super::cause::{CauseKind, MessageCause, Responsible};
use super::judge::Judge;
use super::loss::{MessageIndex, Owner, PacketFate};
use super::times::{PartKind, TimePart, duration_ns, parts, spans};
use crate::timeline::{Message, Setback, SetbackKind, Timeline};

/// A share of the time of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimeShare {
    /// Party that the time is attributed to.
    pub whose: Responsible,
    /// Length of the share, in ns.
    pub ns: u64,
}

/// Splits the time of a message that ended at `end_ns` into shares, in the order of its way. `cause` is why
/// it took its time.
fn shares(owner: &Owner<'_>, message: &Message, end_ns: u64, cause: &MessageCause) -> Vec<TimeShare> {
    let mut sums = [0_u64; Responsible::ALL.len()];
    let mut add = |whose: Responsible, ns: u64| {
        if let Some(sum) = sums.get_mut(whose as usize) {
            *sum = sum.saturating_add(ns);
        }
    };
    let mut network_ns = 0_u64;
    for span in spans(message, end_ns) {
        let has_own = message.end.map_or(message.signaled, |end| end.has_completion);
        let whose = match span.kind {
            PartKind::SendQueue if cause.kind == CauseKind::ReadDepth => Responsible::Program,
            PartKind::SendQueue => Responsible::OwnDevice,
            PartKind::Network => {
                network_ns = network_ns.saturating_add(span.ns());
                continue;
            }
            PartKind::Timeout | PartKind::Silence | PartKind::Loss => match cause.kind {
                CauseKind::LossUnknown => Responsible::Beyond,
                CauseKind::Frozen | CauseKind::PeerSilent | CauseKind::PeerGone => cause.kind.whose(),
                _ => Responsible::Network,
            },
            PartKind::ReceiverNotReady | PartKind::PeerStarved => match &cause.rule {
                Some(_) => cause.kind.whose(),
                None => Responsible::PeerProgram,
            },
            PartKind::Completion if has_own => Responsible::OwnDevice,
            PartKind::Completion | PartKind::Poll => Responsible::Program,
        };
        add(whose, span.ns());
    }
    match owner.in_transit_ns(message) {
        Some(transit_ns) => {
            let transit_ns = transit_ns.min(network_ns);
            add(Responsible::Network, transit_ns);
            add(Responsible::PeerDevice, network_ns - transit_ns);
        }
        None => add(Responsible::Beyond, network_ns),
    }
    let all = Responsible::ALL.into_iter().zip(sums);
    all.filter(|(_, ns)| *ns > 0).map(|(whose, ns)| TimeShare { whose, ns }).collect()
}

/// A part of the time gets a remedy if it is at least one in this many of the whole.
const REMEDY_SHARE: u64 = 4;

/// The story of one message: where its time went.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MessageStory {
    /// Position of the message in the timeline.
    #[serde(skip)]
    pub index: MessageIndex,
    /// Id of the process.
    pub process: u32,
    /// Name of the program.
    pub program: String,
    /// Tag of the process, by which fault plans name it.
    pub tag: String,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Ordinal of the queue pair in the process.
    pub qp: u32,
    /// Ordinal of the request on the queue pair since it was reset.
    pub message: u64,
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// Name of its operation.
    pub operation: String,
    /// Length of the message in bytes.
    pub bytes: u32,
    /// Name of its status; `None` if it has not ended.
    pub status: Option<String>,
    /// Time from the post to the poll of its completion, or to the end of the trace, in ns.
    pub duration_ns: u64,
    /// Time of the post, in ns since the trace that began first.
    pub posted_ns: u64,
    /// Number of transmissions of its most repeated packet.
    pub transmissions: u32,
    /// Number of requests of the queue pair that were posted before it and had not ended.
    pub requests_before: u64,
    /// Cause of the time that it took, or of its failure.
    pub cause: MessageCause,
    /// Parts of its time, longest first.
    pub parts: Vec<TimePart>,
    /// Shares of its time by party, in the order of its way.
    pub shares: Vec<TimeShare>,
    /// Events of the message, a sentence each.
    pub happened: Vec<String>,
    /// Remedies, a sentence each.
    pub remedies: Vec<String>,
}

impl MessageStory {
    /// Returns the story of the message at this index.
    pub(super) fn of(
        timeline: &Timeline,
        judge: &mut Judge<'_>,
        index: MessageIndex,
    ) -> Option<MessageStory> {
        let (process_index, queue_pair, number) = index;
        let cause = judge.judge(index)?.cause;
        let process = timeline.processes.get(process_index)?;
        let owner =
            Owner { timeline, timeline_index: judge.timeline_index, process: process_index, queue_pair };
        let qp = owner.qp()?;
        let message = qp.messages.get(number)?;
        let duration_ns = duration_ns(process, message);
        let parts = parts(message, message.posted_ns.saturating_add(duration_ns));
        let status = message.end.map(|end| end.status);
        let before = qp.messages.iter().take(number).rev();
        let requests_before = before.take_while(|one| is_open(one, message.posted_ns)).count() as u64;
        let mut story = MessageStory {
            index,
            process: process.header.process,
            program: process.header.program.clone(),
            tag: process.header.tag.clone(),
            qpn: qp.qpn,
            qp: qp.ordinal,
            message: message.number,
            wr_id: message.wr_id,
            operation: operation(message.opcode),
            bytes: message.bytes,
            status: status.map(status_name),
            duration_ns,
            posted_ns: message.posted_ns,
            transmissions: message.transmissions,
            requests_before,
            shares: shares(&owner, message, message.posted_ns.saturating_add(duration_ns), &cause),
            cause,
            parts,
            happened: Vec::new(),
            remedies: Vec::new(),
        };
        story.add_setbacks(&owner, message);
        story.add_failure(&owner, message);
        story.remedies = remedies(&story, message);
        Some(story)
    }

    /// Adds the setbacks of the message, equal ones together.
    fn add_setbacks(&mut self, owner: &Owner<'_>, message: &Message) {
        let mut in_words: Vec<(&Setback, Option<PacketFate>, u32)> = Vec::new();
        for setback in &message.setbacks {
            let asks = matches!(
                setback.kind,
                SetbackKind::TimedOut { .. } | SetbackKind::Silence | SetbackKind::SequenceNak
            );
            let fate = if asks && setback.is_own { owner.fate(message, setback.at_ns) } else { None };
            // The cause already reports the effect of a fault plan.
            let fate = fate.filter(|fate| self.cause.rule.is_none() || fate.is_by_plan());
            let same = |other: &Setback| {
                let kind = std::mem::discriminant(&other.kind) == std::mem::discriminant(&setback.kind);
                kind && other.is_own == setback.is_own
            };
            match in_words.last_mut() {
                Some((last, known, count)) if same(last) && *known == fate => *count += 1,
                _ => in_words.push((setback, fate, 1)),
            }
        }
        self.happened = in_words
            .iter()
            .map(|one| cause::setback(one.0, one.1, one.2, self.cause.rule.is_some()))
            .collect();
    }

    /// Adds what the log says of a failure.
    fn add_failure(&mut self, owner: &Owner<'_>, message: &Message) {
        let Some(end) = message.end.filter(|end| end.status != 0) else { return };
        if self.cause.rule.is_some() {
            return;
        }
        let logged = owner.found().and_then(|found| found.last_logged(message.posted_ns, end.at_ns));
        self.happened.extend(logged.map(str::to_owned));
    }

    /// Returns the story in words; `others` is a sentence about others with the same cause.
    pub(super) fn in_words(&self, others: &str) -> String {
        let MessageStory { message, wr_id, operation, bytes, qpn, program, process, tag, .. } = self;
        let mut text = format!(
            "Request {message} of QP {qpn:#x} ({program} {process}, tag {tag}; wr_id {wr_id:#x}, {operation} \
             of {bytes} B, posted at {})",
            cause::time(self.posted_ns)
        );
        let took = cause::time(self.duration_ns);
        text += &match &self.status {
            Some(status) => format!(" took {took} and ended with {status}."),
            None => format!(" has not ended: the trace ends {took} after it was posted."),
        };
        let parts = self.parts.iter().filter(|part| cause::is_significant(part.ns, self.duration_ns));
        let parts: Vec<String> =
            parts.map(|one| format!("{} {}", cause::time(one.ns), one.kind.words())).collect();
        let shares = self.shares.iter().filter(|share| cause::is_significant(share.ns, self.duration_ns));
        let shares: Vec<String> =
            shares.map(|one| format!("{} {}", one.whose.words(), cause::time(one.ns))).collect();
        let sentences = [format!("cause: {}", self.cause.sentence)].into_iter();
        let sentences = sentences
            .chain((!parts.is_empty()).then(|| format!("of this: {}", parts.join("; "))))
            .chain((shares.len() > 1).then(|| format!("by share: {}", shares.join(", "))))
            .chain(self.happened.iter().cloned())
            .chain(
                (self.transmissions > 1)
                    .then(|| format!("a packet of it was sent {} times", self.transmissions)),
            )
            .chain(Some(others.to_owned()).filter(|others| !others.is_empty()))
            .chain(
                (!self.remedies.is_empty()).then(|| format!("what to change: {}", self.remedies.join("; "))),
            );
        for sentence in sentences {
            text += " ";
            text += &cause::sentence(&sentence);
        }
        text
    }
}

impl fmt::Display for MessageStory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(""))
    }
}

/// Returns the remedies for the cause, the timer, and the status.
fn remedies(story: &MessageStory, message: &Message) -> Vec<String> {
    let mut remedies: Vec<String> = story.cause.remedy().into_iter().collect();
    let timeout = message.setbacks.iter().find_map(|setback| match setback.kind {
        SetbackKind::TimedOut { timeout, .. } => Some(timeout),
        _ => None,
    });
    let waited = story.parts.iter().filter(|part| part.kind == PartKind::Timeout);
    let waited = waited.into_iter().any(|part| cause::is_share(part.ns, story.duration_ns, REMEDY_SHARE));
    if let Some(timeout) = timeout.filter(|timeout| waited && (1..32).contains(timeout)) {
        let now = cause::time(4096_u64 << timeout);
        remedies.push(format!("a smaller `timeout` (now {timeout}: {now} at least) notices a loss sooner"));
    }
    if story.cause.rule.is_none() {
        remedies.extend(cause::of_status(story.status.as_deref()).map(str::to_owned));
    }
    remedies
}

/// Reports whether a request had not ended at a time.
fn is_open(message: &Message, at_ns: u64) -> bool {
    message.end.is_none_or(|end| end.at_ns > at_ns)
}

fn operation(opcode: u8) -> String {
    let known = SendOpcode::from_number(u32::from(opcode));
    known.map_or_else(|| format!("operation {opcode}"), |known| known.name().to_owned())
}

fn status_name(status: u8) -> String {
    let known = WcStatus::ALL.into_iter().find(|known| *known as u8 == status);
    known.map_or_else(|| format!("status {status}"), |known| known.name().to_owned())
}

//! The story of one message.

use std::fmt;

use pumice_transport::types::{SendOpcode, WcStatus};

use super::cause::Cause;
use super::judge::Judge;
use super::loss::{Fate, MessageIndex, Owner};
use super::split::{Share, shares};
use super::times::{Part, PartKind, duration_ns, parts};
use super::words;
use crate::timeline::{Message, MomentKind, QueuePair, Setback, SetbackKind, Timeline};

/// A part of the time is worth a remedy if it is at least this share: one in so many.
const REMEDY_SHARE: u64 = 4;

/// Where the time of one message went.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Story {
    /// Where it is in the timeline.
    #[serde(skip)]
    pub index: MessageIndex,
    /// The process, its program, and its tag.
    pub process: u32,
    /// Name of the program.
    pub program: String,
    /// What fault plans call the process.
    pub tag: String,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Its ordinal in the process.
    pub qp: u32,
    /// The ordinal of the request on the queue pair since it was reset.
    pub message: u64,
    /// Of the request.
    pub wr_id: u64,
    /// Name of its operation.
    pub operation: String,
    /// Its length.
    pub bytes: u32,
    /// Name of its status; none if it has not ended.
    pub status: Option<String>,
    /// From the post to the poll of its completion, or to the end of the trace, in ns.
    pub duration_ns: u64,
    /// Since the first record of all traces, in ns.
    pub posted_ns: u64,
    /// How often its most repeated packet was sent.
    pub transmissions: u32,
    /// Requests of the queue pair that were posted before it and had not ended.
    pub requests_before: u64,
    /// Why.
    pub cause: Cause,
    /// Where the time went, longest first.
    pub parts: Vec<Part>,
    /// Whose time it was, in the order of its way.
    pub shares: Vec<Share>,
    /// What happened to it, a sentence each.
    pub happened: Vec<String>,
    /// What to change, a sentence each.
    pub remedies: Vec<String>,
}

impl Story {
    /// Of the message at this index.
    pub(super) fn of(timeline: &Timeline, judge: &mut Judge<'_>, index: MessageIndex) -> Option<Story> {
        let (process_index, queue_pair, number) = index;
        let cause = judge.judge(index)?.cause;
        let process = timeline.processes.get(process_index)?;
        let owner = Owner { timeline, arrows: judge.arrows, process: process_index, queue_pair };
        let qp = owner.qp()?;
        let message = qp.messages.get(number)?;
        let duration_ns = duration_ns(process, message);
        let parts = parts(message, message.posted_ns.saturating_add(duration_ns));
        let status = message.end.map(|end| end.status);
        let before = qp.messages.iter().take(number).rev();
        let requests_before = before.take_while(|one| is_open(one, message.posted_ns)).count() as u64;
        let mut story = Story {
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
        story.tell_setbacks(&owner, message);
        story.tell_failure(qp, message);
        story.remedies = remedies(&story, message);
        Some(story)
    }

    /// What kept it from going on, the same things together.
    fn tell_setbacks(&mut self, owner: &Owner<'_>, message: &Message) {
        let mut told: Vec<(&Setback, Option<Fate>, u32)> = Vec::new();
        for setback in &message.setbacks {
            let asks = matches!(
                setback.kind,
                SetbackKind::TimedOut { .. } | SetbackKind::Silence | SetbackKind::SequenceNak
            );
            let fate = if asks && setback.is_own { owner.fate(message, setback.at_ns) } else { None };
            // What a plan did is said as the cause.
            let fate = fate.filter(|fate| self.cause.rule.is_none() || fate.is_by_plan());
            let same = |other: &Setback| {
                let kind = std::mem::discriminant(&other.kind) == std::mem::discriminant(&setback.kind);
                kind && other.is_own == setback.is_own
            };
            match told.last_mut() {
                Some((last, known, count)) if same(last) && *known == fate => *count += 1,
                _ => told.push((setback, fate, 1)),
            }
        }
        self.happened =
            told.iter().map(|one| words::setback(one.0, one.1, one.2, self.cause.rule.is_some())).collect();
    }

    /// What the log says of a failure.
    fn tell_failure(&mut self, qp: &QueuePair, message: &Message) {
        let Some(end) = message.end.filter(|end| end.status != 0) else { return };
        if self.cause.rule.is_some() {
            return;
        }
        let mut logged = qp.moments.iter().filter(|moment| {
            moment.kind == MomentKind::Log && (message.posted_ns..=end.at_ns).contains(&moment.at_ns)
        });
        self.happened.extend(logged.next_back().map(|moment| moment.text.clone()));
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(""))
    }
}

impl Story {
    /// The story in words; `others`: a sentence about others with the same cause.
    pub(super) fn told(&self, others: &str) -> String {
        let Story { message, wr_id, operation, bytes, qpn, program, process, tag, .. } = self;
        let mut text = format!(
            "Request {message} of QP {qpn:#x} ({program} {process}, tag {tag}; wr_id {wr_id:#x}, {operation} \
             of {bytes} B, posted at {})",
            words::time(self.posted_ns)
        );
        let took = words::time(self.duration_ns);
        text += &match &self.status {
            Some(status) => format!(" took {took} and ended with {status}."),
            None => format!(" has not ended: the trace ends {took} after it was posted."),
        };
        let parts = self.parts.iter().filter(|part| words::is_told(part.ns, self.duration_ns));
        let parts: Vec<String> =
            parts.map(|one| format!("{} {}", words::time(one.ns), one.kind.words())).collect();
        let shares = self.shares.iter().filter(|share| words::is_told(share.ns, self.duration_ns));
        let shares: Vec<String> =
            shares.map(|one| format!("{} {}", one.whose.words(), words::time(one.ns))).collect();
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
            text += &words::sentence(&sentence);
        }
        text
    }
}

/// What to change: about the cause, the timer, and the status.
fn remedies(story: &Story, message: &Message) -> Vec<String> {
    let mut remedies: Vec<String> = story.cause.remedy().into_iter().collect();
    let timeout = message.setbacks.iter().find_map(|setback| match setback.kind {
        SetbackKind::TimedOut { timeout, .. } => Some(timeout),
        _ => None,
    });
    let waited = story.parts.iter().filter(|part| part.kind == PartKind::Timeout);
    let waited = waited.into_iter().any(|part| words::is_share(part.ns, story.duration_ns, REMEDY_SHARE));
    if let Some(timeout) = timeout.filter(|timeout| waited && (1..32).contains(timeout)) {
        let now = words::time(4096_u64 << timeout);
        remedies.push(format!("a smaller `timeout` (now {timeout}: {now} at least) notices a loss sooner"));
    }
    if story.cause.rule.is_none() {
        remedies.extend(words::of_status(story.status.as_deref()).map(str::to_owned));
    }
    remedies
}

/// Whether a request had not ended at a time.
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

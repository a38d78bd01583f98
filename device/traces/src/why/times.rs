//! The time of a message, in parts that do not overlap.

use std::cmp::Reverse;

use crate::timeline::{Message, Setback, SetbackKind, TimelineProcess};

/// What a part of the time went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// In the send queue, before its first packet.
    SendQueue,
    /// Packets go and answers come.
    Network,
    /// Until the acknowledgement timer expired.
    Timeout,
    /// Until the peer was silent for longer than its answers take.
    Silence,
    /// The peer had no receive request, and asked for this time.
    ReceiverNotReady,
    /// The peer's process had no processor.
    PeerStarved,
    /// Acknowledged, until it completed: requests before it had not completed.
    Completion,
    /// Completed, until the program polled.
    Poll,
}

impl PartKind {
    /// All of them, in the order in which they come in the life of a message.
    pub const ALL: [PartKind; 8] = [
        PartKind::SendQueue,
        PartKind::Network,
        PartKind::Timeout,
        PartKind::Silence,
        PartKind::ReceiverNotReady,
        PartKind::PeerStarved,
        PartKind::Completion,
        PartKind::Poll,
    ];

    /// Where the time went, in words.
    pub const fn words(self) -> &'static str {
        match self {
            PartKind::SendQueue => "in the send queue, before its first packet",
            PartKind::Network => "on the way to the peer and back",
            PartKind::Timeout => "until the acknowledgement timer expired",
            PartKind::Silence => "until the peer's silence was taken for a loss",
            PartKind::ReceiverNotReady => "waiting until the peer might have a receive request",
            PartKind::PeerStarved => "while the peer's process had no processor",
            PartKind::Completion => "acknowledged, until it completed",
            PartKind::Poll => "completed, until the program polled",
        }
    }
}

/// A part of the time of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// What it went to.
    pub kind: PartKind,
    /// How long it was, in ns.
    pub ns: u64,
}

impl Part {
    /// How long a message of this process took in ns, to the end of the trace if it has not ended, and the
    /// parts of that time, longest first.
    pub fn of(process: &TimelineProcess, message: &Message) -> (u64, Vec<Part>) {
        let duration_ns = duration_ns(process, message);
        (duration_ns, parts(message, message.posted_ns.saturating_add(duration_ns)))
    }
}

/// How long a message took: until the program had its completion, or to the end of the trace.
pub(super) fn duration_ns(process: &TimelineProcess, message: &Message) -> u64 {
    let last_ns = if message.end.is_some() { message.last_ns() } else { process.span_ns.1 };
    last_ns.saturating_sub(message.posted_ns)
}

/// What a setback cost: from when to when nothing else could happen.
fn wait_of(setback: &Setback) -> Option<(PartKind, u64, u64)> {
    let Setback { at_ns, silent_since_ns, .. } = *setback;
    match setback.kind {
        SetbackKind::TimedOut { .. } => Some((PartKind::Timeout, silent_since_ns, at_ns)),
        SetbackKind::Silence => Some((PartKind::Silence, silent_since_ns, at_ns)),
        SetbackKind::PeerStarved => Some((PartKind::PeerStarved, silent_since_ns, at_ns)),
        SetbackKind::ReceiverNotReady { wait_ns, .. } => {
            Some((PartKind::ReceiverNotReady, at_ns, at_ns.saturating_add(wait_ns)))
        }
        // The peer noticed by itself: there was no wait.
        SetbackKind::SequenceNak | SetbackKind::MissingAnswer => None,
    }
}

/// A stretch of a message's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// What it went to.
    pub(super) kind: PartKind,
    /// When it began.
    pub(super) from_ns: u64,
    /// When it ended.
    pub(super) to_ns: u64,
    /// The setback that ended it, or that it follows: its index in the message.
    pub(super) setback: Option<usize>,
}

impl Span {
    /// How long it was, in ns.
    pub(super) const fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The stretches of a message's time, in order; `end_ns` is where its time ends.
pub(super) fn spans(message: &Message, end_ns: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut add = |kind, from_ns: u64, to_ns: u64, setback| {
        if to_ns > from_ns {
            spans.push(Span { kind, from_ns, to_ns, setback });
        }
    };
    let completed_ns = message.end.map_or(end_ns, |end| end.at_ns).min(end_ns);
    let first_ns = message.first_packet_ns.unwrap_or(completed_ns).min(completed_ns);
    add(PartKind::SendQueue, message.posted_ns, first_ns, None);
    let answered_ns = message.acknowledged_ns.unwrap_or(completed_ns).clamp(first_ns, completed_ns);
    let mut at_ns = first_ns;
    for (number, setback) in message.setbacks.iter().enumerate() {
        let Some((kind, from_ns, to_ns)) = wait_of(setback) else { continue };
        let (from_ns, to_ns) = (from_ns.clamp(at_ns, answered_ns), to_ns.clamp(at_ns, answered_ns));
        add(PartKind::Network, at_ns, from_ns, None);
        add(kind, from_ns, to_ns, Some(number));
        at_ns = to_ns.max(at_ns);
    }
    add(PartKind::Network, at_ns, answered_ns, None);
    add(PartKind::Completion, answered_ns, completed_ns, None);
    add(PartKind::Poll, completed_ns, end_ns, None);
    spans
}

/// The parts of a message's time, longest first; `end_ns` is where its time ends.
pub(super) fn parts(message: &Message, end_ns: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for span in spans(message, end_ns) {
        match parts.iter_mut().find(|part| part.kind == span.kind) {
            Some(part) => part.ns = part.ns.saturating_add(span.ns()),
            None => parts.push(Part { kind: span.kind, ns: span.ns() }),
        }
    }
    parts.sort_by_key(|part| Reverse(part.ns));
    parts
}

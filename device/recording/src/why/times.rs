//! Splits the time of a message into parts that do not overlap.

use std::cmp::Reverse;

use crate::timeline::{Message, Setback, SetbackKind, TimelineProcess};

/// The activity that a part of a message's time is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// The request waits in the send queue, before its first packet.
    SendQueue,
    /// Packets and answers travel.
    Network,
    /// The requester waits until the acknowledgement timer expires.
    Timeout,
    /// The requester waits until the peer was silent for longer than its answers take.
    Silence,
    /// A packet is lost, and the requester has not found that out.
    Loss,
    /// The requester waits for the time that the peer's RNR NAK asked for.
    ReceiverNotReady,
    /// The peer's process had no processor.
    PeerStarved,
    /// The request is acknowledged, but requests before it have not completed.
    Completion,
    /// The request has completed, but the program has not polled.
    Poll,
}

impl PartKind {
    /// All kinds, in the order in which they come in the life of a message.
    pub const ALL: [PartKind; 9] = [
        PartKind::SendQueue,
        PartKind::Network,
        PartKind::Timeout,
        PartKind::Silence,
        PartKind::Loss,
        PartKind::ReceiverNotReady,
        PartKind::PeerStarved,
        PartKind::Completion,
        PartKind::Poll,
    ];

    /// Says in words where the time went.
    pub const fn words(self) -> &'static str {
        match self {
            PartKind::SendQueue => "in the send queue, before its first packet",
            PartKind::Network => "on the way to the peer and back",
            PartKind::Timeout => "until the acknowledgement timer expired",
            PartKind::Silence => "until the peer's silence was taken for a loss",
            PartKind::Loss => "until a lost packet was missed",
            PartKind::ReceiverNotReady => "waiting until the peer might have a receive request",
            PartKind::PeerStarved => "while the peer's process had no processor",
            PartKind::Completion => "acknowledged, until it completed",
            PartKind::Poll => "completed, until the program polled",
        }
    }
}

/// A part of the time of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct TimePart {
    /// Kind of the part.
    pub kind: PartKind,
    /// Length of the part, in ns.
    pub ns: u64,
}

impl TimePart {
    /// Returns how long a message of this process took in ns, to the end of the trace if it has not ended,
    /// and the parts of that time, longest first.
    pub fn of(process: &TimelineProcess, message: &Message) -> (u64, Vec<TimePart>) {
        let duration_ns = duration_ns(process, message);
        (duration_ns, parts(message, message.posted_ns.saturating_add(duration_ns)))
    }
}

/// Returns how long a message took: until the program polled its completion, or to the end of the trace.
pub(super) fn duration_ns(process: &TimelineProcess, message: &Message) -> u64 {
    let last_ns = if message.end.is_some() { message.last_ns() } else { process.span_ns.1 };
    last_ns.saturating_sub(message.posted_ns)
}

/// Returns the wait that a setback cost: its kind, start and end.
fn wait_of(setback: &Setback) -> Option<(PartKind, u64, u64)> {
    let Setback { at_ns, silent_since_ns, .. } = *setback;
    match setback.kind {
        SetbackKind::TimedOut { .. } => Some((PartKind::Timeout, silent_since_ns, at_ns)),
        SetbackKind::Silence => Some((PartKind::Silence, silent_since_ns, at_ns)),
        SetbackKind::PeerStarved => Some((PartKind::PeerStarved, silent_since_ns, at_ns)),
        SetbackKind::Lost { .. } => Some((PartKind::Loss, silent_since_ns, at_ns)),
        SetbackKind::ReceiverNotReady { wait_ns, .. } => {
            Some((PartKind::ReceiverNotReady, at_ns, at_ns.saturating_add(wait_ns)))
        }
        // The peer's answer shows it at once, so there was no wait.
        SetbackKind::SequenceNak | SetbackKind::MissingAnswer => None,
    }
}

/// A stretch of a message's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeSpan {
    /// Kind of the stretch.
    pub(super) kind: PartKind,
    /// Start of the stretch, in ns.
    pub(super) from_ns: u64,
    /// End of the stretch, in ns.
    pub(super) to_ns: u64,
    /// The setback that ended the stretch, or that it follows, as its index in the message.
    pub(super) setback: Option<usize>,
}

impl TimeSpan {
    /// Returns the length of the stretch, in ns.
    pub(super) const fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Splits a message's time into stretches, in order; `end_ns` is where its time ends.
pub(super) fn spans(message: &Message, end_ns: u64) -> Vec<TimeSpan> {
    let mut spans: Vec<TimeSpan> = Vec::new();
    let mut add = |kind, from_ns: u64, to_ns: u64, setback| {
        if to_ns > from_ns {
            spans.push(TimeSpan { kind, from_ns, to_ns, setback });
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

/// Returns the parts of a message's time, longest first; `end_ns` is where its time ends.
pub(super) fn parts(message: &Message, end_ns: u64) -> Vec<TimePart> {
    let mut parts: Vec<TimePart> = Vec::new();
    for span in spans(message, end_ns) {
        match parts.iter_mut().find(|part| part.kind == span.kind) {
            Some(part) => part.ns = part.ns.saturating_add(span.ns()),
            None => parts.push(TimePart { kind: span.kind, ns: span.ns() }),
        }
    }
    parts.sort_by_key(|part| Reverse(part.ns));
    parts
}

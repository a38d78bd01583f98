//! The groups of values that a requester's state consists of.

use crate::types::{IgnoredAnswers, MemoryFault, WcStatus};
use crate::wire::{Psn, Syndrome};

/// The PSNs between which a requester sends.
#[derive(Debug, Default)]
pub(crate) struct SendPsns {
    /// PSN of the next posted request.
    pub(crate) next_psn: Psn,
    /// Oldest PSN not yet acknowledged.
    pub(crate) acked: Psn,
    /// PSN after the newest one ever sent.
    pub(crate) sent_end: Psn,
    /// PSN of the first request after RTR.
    pub(crate) first_psn: Psn,
}

/// The position of a requester in its send queue.
#[derive(Debug, Default)]
pub(crate) struct SendPosition {
    /// Number of the entry being sent.
    pub(crate) cursor: u64,
    /// Next packet of that entry.
    pub(crate) cursor_packet: u32,
    /// Number of the first entry that has not been started.
    pub(crate) started: u64,
    /// Number of packets sent since one asked for an ACK.
    pub(super) packets_since_ack_request: u32,
}

/// The timers of a requester, and the retries that they have left.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// Number of retries left when the transport timer expires.
    pub(crate) left: u8,
    /// Number of retries left when an RNR NAK comes.
    pub(crate) rnr_left: u8,
    /// Time at which the transport timer expires.
    pub(crate) timer_ns: Option<u64>,
    /// Time at which that timer was started.
    pub(super) timer_began_ns: u64,
    /// Time since which the requester waits for a peer that has no processor.
    pub(super) starved_since_ns: Option<u64>,
    /// True if no process had the peer's number when the last retry was used up.
    pub(super) peer_is_absent: bool,
    /// Number of expirations of the transport timer since the last progress.
    pub(crate) silences: u32,
    /// Time until which the requester waits after an RNR NAK.
    pub(crate) rnr_until_ns: Option<u64>,
}

/// The early timer of a requester, which runs while its path is known to lose packets.
#[derive(Debug, Default)]
pub(crate) struct EarlyTimer {
    /// Time at which the early timer expires.
    pub(crate) timer_ns: Option<u64>,
    /// Number of expirations of the early timer since the last progress.
    pub(crate) backoff: u32,
    /// Time until which the path counts as one that loses packets.
    pub(crate) lossy_until_ns: u64,
}

/// The answers to a requester that made no progress.
#[derive(Debug, Default)]
pub(crate) struct FruitlessAnswers {
    /// True if an implied NAK was acted on; others are ignored until progress.
    pub(crate) implied_nak_seen: bool,
    /// True if an RNR NAK came, and neither progress nor a sequence NAK after it.
    pub(crate) refused_for_now: bool,
    /// Answers without progress since the last progress.
    pub(crate) ignored_answers: IgnoredAnswers,
}

/// The failures of a requester that wait until the requests before them have completed.
#[derive(Debug, Default)]
pub(crate) struct PendingFailures {
    /// Fault of the memory or key of the request that fails next.
    pub(crate) fault: Option<MemoryFault>,
    /// Action of a fault plan in the peer's name, or on the device; no packet beyond its packet is sent
    /// before it.
    pub(super) injected: Option<InjectedAnswer>,
    /// Entry that failed locally, which waits for those before it to complete.
    pub(crate) local_failure: Option<(u64, WcStatus)>,
    /// Status that the host gives the entry at the head, which is done.
    pub(crate) judged: Option<WcStatus>,
    /// True if data of a completed request did not fit its signatures: the queue pair has to stop.
    pub(crate) has_bad_signature: bool,
}

/// An action of a fault plan when all packets before one are acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct InjectedAnswer {
    /// PSN of the packet.
    pub(super) psn: Psn,
    pub(super) answer: InjectedEffect,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum InjectedEffect {
    /// A NAK or RNR NAK in the peer's name.
    Refusal(Syndrome),
    /// The host is notified.
    Halt,
    /// The host was notified, and has not let it continue.
    Halted,
}

//! Timelines: traces combined, so that every work request has its events on one clock.
//!
//! Processes, queue pairs, messages and packets of a timeline. All times are ns since the trace that
//! began first.

use std::net::IpAddr;

use pumice_transport::types::MrcLossProof;

use crate::format::TraceHeader;

/// The combined contents of one or several traces.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The processes, in the order in which their traces were given; a process that opened its device several
    /// times is listed once for each opening.
    pub processes: Vec<TimelineProcess>,
    /// Packets that one process sent and another received.
    pub arrows: Vec<Arrow>,
    /// Remarks for the reader, a sentence each: what is missing, and what is contradictory.
    pub remarks: Vec<String>,
}

/// A device of a process, from its opening to its end.
#[derive(Debug, Default)]
pub struct TimelineProcess {
    /// Header of its trace.
    pub header: TraceHeader,
    /// Its queue pairs, in the order in which they were made.
    pub queue_pairs: Vec<TracedQueuePair>,
    /// Events that belong to no queue pair.
    pub moments: Vec<TimelineEvent>,
    /// Events that may be causes.
    pub evidence: CauseEvidence,
    /// Times of its first and of its last record, in ns of the device's clock.
    pub span_ns: (u64, u64),
    /// Time at which its recording began, if that was while it ran: events before it, and behind the last
    /// record, are unknown.
    pub began_ns: Option<u64>,
}

impl TimelineProcess {
    /// Reports whether its trace covers the whole time from `from_ns` to `to_ns`.
    pub(crate) fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        self.began_ns.is_none_or(|began_ns| began_ns <= from_ns && to_ns <= self.span_ns.1)
    }
}

/// A queue pair.
#[derive(Debug, Default)]
pub struct TracedQueuePair {
    /// Ordinal of the queue pair in its process, from 0.
    pub ordinal: u32,
    /// Number of the queue pair; 0 if the trace does not have it.
    pub qpn: u32,
    /// Transport service of the queue pair.
    pub service: String,
    /// Address and queue pair number of the last peer.
    pub peer: Option<(IpAddr, u32)>,
    /// Send requests, in their order.
    pub messages: Vec<Message>,
    /// Receive requests that completed, in the order of their completions.
    pub receives: Vec<Receive>,
    /// Packets sent and received.
    pub packets: Vec<TracedPacket>,
    /// Other events of the queue pair.
    pub moments: Vec<TimelineEvent>,
    /// Measurements of the path by its requester.
    pub measures: Vec<Measure>,
    /// Times at which the queue pair received or sent RNR NAKs, in ns.
    pub rnr_naks_ns: Vec<u64>,
    /// Signs of congestion that it received: marked packets and notifications.
    pub congestion: Vec<Congestion>,
    /// Requests that it received again: their times and PSNs.
    pub duplicates: Vec<(u64, u32)>,
    /// Number of requests that fit in its send queue, and its `max_rd_atomic`, once it was in RTS.
    pub limits: Option<(u32, u8)>,
    /// Number of send requests that were posted before the recording and have not ended.
    pub unseen: u64,
    /// Time at which the last one of these requests ended, in ns.
    pub unseen_until_ns: Option<u64>,
    /// The paths of an MRC queue pair, from RTS on.
    pub multipath: Option<Box<TracedPaths>>,
    /// The ways of its packets, from and to; [`TracedPacket::path`] is an index into them.
    pub paths: Vec<(IpAddr, IpAddr)>,
}

/// A sign of congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Congestion {
    /// Time of the sign, in ns.
    pub at_ns: u64,
    /// Kind of the sign.
    pub kind: CongestionKind,
}

/// A kind of sign of congestion that a queue pair receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionKind {
    /// A marked packet arrived.
    Marked,
    /// A notification arrived: the queue pair slows down.
    Notified,
    /// The queue pair sends at this rate, in bit/s.
    Rate(u64),
}

/// A requester's measurements of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// Time of the measurement, in ns.
    pub at_ns: u64,
    /// Smoothed round trip time in ns.
    pub rtt_ns: Option<u64>,
    /// Number of request packets that may be unacknowledged.
    pub window_packets: u32,
    /// Number of request packets that were unacknowledged.
    pub in_flight_packets: u32,
}

/// The end of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestEnd {
    /// Time of the end, in ns.
    pub at_ns: u64,
    /// Status, as the number in verbs.
    pub status: u8,
    /// Completion queue, as its index in the table.
    pub cq: u32,
    /// The request has a completion of its own; otherwise it ended with the next one that has.
    pub has_completion: bool,
}

/// A send request.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// Number of resets of the queue pair before.
    pub connection: u32,
    /// Ordinal of the request since the last reset.
    pub number: u64,
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// Operation, as the number in verbs.
    pub opcode: u8,
    /// Length of the message in bytes.
    pub bytes: u32,
    /// PSN of its first packet.
    pub psn: u32,
    /// Number of PSNs that the request takes.
    pub packets: u32,
    /// The request makes a completion when it succeeds.
    pub signaled: bool,
    /// The payload was copied when the request was posted.
    pub inline: bool,
    /// Requests from before the recording were under way when it was posted.
    pub is_behind_unseen: bool,
    /// Time at which the program posted it, in ns.
    pub posted_ns: u64,
    /// Time at which its first packet was sent, in ns.
    pub first_packet_ns: Option<u64>,
    /// Time at which its last packet was sent for the last time, in ns.
    pub last_packet_ns: Option<u64>,
    /// Number of its packets that were sent, including retransmissions.
    pub packets_sent: u32,
    /// Number of transmissions of its most repeated packet.
    pub transmissions: u32,
    /// Time at which the peer had acknowledged all of it, in ns.
    pub acknowledged_ns: Option<u64>,
    /// The end of the request, if it has ended.
    pub end: Option<RequestEnd>,
    /// Time at which the program polled its completion, in ns.
    pub polled_ns: Option<u64>,
    /// Setbacks of the request, in order.
    pub setbacks: Vec<Setback>,
}

impl Message {
    /// Returns the last time that is known of the request.
    pub fn last_ns(&self) -> u64 {
        let ended = self.end.map(|end| end.at_ns);
        let known = [self.first_packet_ns, self.last_packet_ns, self.acknowledged_ns, ended, self.polled_ns];
        known.into_iter().flatten().fold(self.posted_ns, u64::max)
    }
}

/// An event that kept a message from progressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setback {
    /// Time of the setback, in ns.
    pub at_ns: u64,
    /// Kind of the setback.
    pub kind: SetbackKind,
    /// The setback was about a packet of this message; otherwise about one before it on the queue pair.
    pub is_own: bool,
    /// The last time before the setback at which the queue pair's requester sent a packet, in ns.
    pub silent_since_ns: u64,
}

/// A kind of setback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetbackKind {
    /// The acknowledgement timer expired.
    TimedOut {
        /// Attribute `timeout` of the queue pair.
        timeout: u8,
        /// Number of retries that were left.
        retries_left: u8,
    },
    /// The peer was silent for longer than its answers take, on a path that is known to lose packets.
    Silence,
    /// The peer missed a packet and sent a sequence NAK.
    SequenceNak,
    /// A later answer showed that an answer was lost.
    MissingAnswer,
    /// The peer had no receive request and sent an RNR NAK.
    ReceiverNotReady {
        /// Time for which nothing was sent, in ns.
        wait_ns: u64,
        /// Number of retries that were left; 7 means unlimited.
        retries_left: u8,
    },
    /// The peer's process had no processor.
    PeerStarved,
    /// A packet of an MRC queue pair counted as lost, without the acknowledgement timer.
    Lost {
        /// PSN of the packet.
        psn: u32,
        /// Way in which the loss was found.
        proof: MrcLossProof,
    },
}

/// A receive request that completed.
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// Time at which it was posted in ns, if to this queue pair.
    pub posted_ns: Option<u64>,
    /// The end of the request.
    pub end: RequestEnd,
    /// Length of the message in bytes.
    pub bytes: u32,
    /// Time at which the program polled its completion, in ns.
    pub polled_ns: Option<u64>,
}

/// A packet, as its sender or its receiver recorded it.
#[derive(Debug, Clone, Copy)]
pub struct TracedPacket {
    /// Time of the record, in ns.
    pub at_ns: u64,
    /// The packet was sent; otherwise it arrived.
    pub is_sent: bool,
    /// A fault plan lost the packet.
    pub is_lost: bool,
    /// The packet was dropped on arrival.
    pub is_dropped: bool,
    /// The side that sent it: 0 requester, 1 responder, 2 congestion notification. Known of sent packets
    /// only.
    pub side: u8,
    /// Opcode on the wire.
    pub opcode: u8,
    /// PSN of the packet.
    pub psn: u32,
    /// Bytes from the BTH to the ICRC.
    pub length: u32,
    /// Transmission of this PSN, counted from 1. Known of sent packets only.
    pub transmission: u32,
    /// The message that the packet belongs to, or answers. Known of sent packets only.
    pub message: u64,
    /// Queue pair number of the other end, of a packet that was sent or a datagram that arrived; otherwise 0.
    pub other_qpn: u32,
    /// The packet's way as an index into [`TracedQueuePair::paths`]; `None` if the trace does not have it.
    pub path: Option<u32>,
}

/// The subject of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimelineEventKind {
    /// The state of a queue pair changed.
    State,
    /// Connection management.
    Cm,
    /// A call that was refused.
    Call,
    /// An asynchronous event.
    AsyncEvent,
    /// A completion event.
    CompletionEvent,
    /// A fault plan.
    Fault,
    /// A packet that was dropped, repeated or out of order.
    Drop,
    /// A NAK or a congestion notification.
    Refusal,
    /// The requester's recovery from loss.
    Recovery,
    /// A failure that was logged for the operator.
    Log,
    /// Records are missing.
    Missing,
}

impl TimelineEventKind {
    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            TimelineEventKind::State => "state",
            TimelineEventKind::Cm => "cm",
            TimelineEventKind::Call => "call",
            TimelineEventKind::AsyncEvent => "async event",
            TimelineEventKind::CompletionEvent => "completion event",
            TimelineEventKind::Fault => "fault",
            TimelineEventKind::Drop => "drop",
            TimelineEventKind::Refusal => "refusal",
            TimelineEventKind::Recovery => "recovery",
            TimelineEventKind::Log => "log",
            TimelineEventKind::Missing => "missing",
        }
    }
}

/// An event at one time, in words.
#[derive(Debug, Clone)]
pub struct TimelineEvent {
    /// Time of the event, in ns.
    pub at_ns: u64,
    /// Subject of the event.
    pub kind: TimelineEventKind,
    /// A sentence that says what happened.
    pub text: String,
}

/// The position of a packet in a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketIndex {
    /// Index of the process.
    pub process: usize,
    /// Index of the queue pair in the process.
    pub queue_pair: usize,
    /// Index of the packet in the queue pair.
    pub packet: usize,
}

/// A packet that one process sent and another received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrow {
    /// The packet as it was sent.
    pub from: PacketIndex,
    /// The packet as it arrived.
    pub to: PacketIndex,
}

mod build;
mod clock;
mod evidence;
mod hosts;
mod multipath;
mod process;
mod queue_pair;

mod words;

pub use evidence::{CauseEvidence, FaultFact, RefusedCall};

pub use multipath::{TracedPath, TracedPaths, TracedPlane};
pub(super) use words::loss_in_words;

#[cfg(test)]
mod tests;

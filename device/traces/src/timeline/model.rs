//! Processes, queue pairs, messages and packets of a timeline. All times are ns since the first record of all
//! traces.

use std::net::IpAddr;

use super::evidence::Evidence;
use crate::format::TraceHeader;

/// What one or several traces tell.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The processes, in the order in which their traces were given; a process that opened its device several
    /// times is there as often.
    pub processes: Vec<TimelineProcess>,
    /// Packets that one process sent and another received.
    pub arrows: Vec<Arrow>,
    /// What the reader should know: what is missing, and what does not fit together. A sentence each.
    pub remarks: Vec<String>,
}

/// A device of a process, from its opening to its end.
#[derive(Debug, Default)]
pub struct TimelineProcess {
    /// What its trace says of itself.
    pub header: TraceHeader,
    /// Its queue pairs, in the order in which they were made.
    pub queue_pairs: Vec<QueuePair>,
    /// What happened to no queue pair in particular.
    pub moments: Vec<Moment>,
    /// What may be the cause of something.
    pub evidence: Evidence,
    /// Time of its first record in ns of the device's clock, and of its last one.
    pub span_ns: (u64, u64),
    /// When its recording began, if that was while it ran: nothing is known of what was before, nor of what
    /// came behind its last record.
    pub began_ns: Option<u64>,
}

impl TimelineProcess {
    /// Whether its trace would have what happened from one time to another.
    pub(crate) fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        self.began_ns.is_none_or(|began_ns| began_ns <= from_ns && to_ns <= self.span_ns.1)
    }
}

/// A queue pair.
#[derive(Debug, Default)]
pub struct QueuePair {
    /// Its ordinal in the process, from 0.
    pub ordinal: u32,
    /// Its number; 0 if the trace does not tell.
    pub qpn: u32,
    /// Its transport service.
    pub service: String,
    /// The peer that it was connected to last.
    pub peer: Option<(IpAddr, u32)>,
    /// Its send requests, in their order.
    pub messages: Vec<Message>,
    /// Its receive requests, as far as they completed, in the order of their completions.
    pub receives: Vec<Receive>,
    /// Packets sent and received.
    pub packets: Vec<Packet>,
    /// What else happened to it.
    pub moments: Vec<Moment>,
    /// What its requester knew of the path.
    pub measures: Vec<Measure>,
    /// When RNR NAKs came to it, and when it sent some.
    pub rnr_naks_ns: Vec<u64>,
    /// When it heard of congestion: packets that were marked, and notifications.
    pub congestion: Vec<Congestion>,
    /// Requests that came to it again: when, and their PSNs.
    pub duplicates: Vec<(u64, u32)>,
    /// Requests that its send queue has room for, and its `max_rd_atomic`, once it was in RTS.
    pub limits: Option<(u32, u8)>,
    /// Send requests of before the recording that have not ended.
    pub unseen: u64,
    /// When others of these ended last.
    pub unseen_until_ns: Option<u64>,
    /// The ways of its packets, from and to; [`Packet::way`] is an index here.
    pub ways: Vec<(IpAddr, IpAddr)>,
}

/// A word of congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Congestion {
    /// When.
    pub at_ns: u64,
    /// Which one.
    pub kind: CongestionKind,
}

/// What a queue pair hears of congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionKind {
    /// A packet came that was marked.
    Marked,
    /// A notification came: the queue pair slows down.
    Notified,
    /// Its rate is this, in bit/s.
    Rate(u64),
}

/// What a requester knew of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// When.
    pub at_ns: u64,
    /// Round trip time, smoothed, in ns.
    pub rtt_ns: Option<u64>,
    /// Request packets that may be unacknowledged.
    pub window_packets: u32,
    /// Request packets that were unacknowledged.
    pub in_flight_packets: u32,
}

/// How a work request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestEnd {
    /// When.
    pub at_ns: u64,
    /// Its status: the number in verbs.
    pub status: u8,
    /// The completion queue: its index in the table.
    pub cq: u32,
    /// It has a completion of its own; else it is over with the next one that has.
    pub has_completion: bool,
}

/// A send request.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// How often the queue pair was reset before.
    pub connection: u32,
    /// Its ordinal since then.
    pub number: u64,
    /// Of the request.
    pub wr_id: u64,
    /// Its operation: the number in verbs.
    pub opcode: u8,
    /// Its length in bytes.
    pub bytes: u32,
    /// PSN of its first packet.
    pub psn: u32,
    /// PSNs that it takes.
    pub packets: u32,
    /// It makes a completion when it succeeds.
    pub signaled: bool,
    /// Requests of before the recording were under way when it was posted.
    pub is_behind_unseen: bool,
    /// When it was posted.
    pub posted_ns: u64,
    /// When its first packet was sent.
    pub first_packet_ns: Option<u64>,
    /// When its last packet was sent, for the last time.
    pub last_packet_ns: Option<u64>,
    /// Packets of it that were sent, repeated ones as well.
    pub packets_sent: u32,
    /// How often its most repeated packet was sent.
    pub transmissions: u32,
    /// When the peer had acknowledged all of it.
    pub acknowledged_ns: Option<u64>,
    /// How it ended.
    pub end: Option<RequestEnd>,
    /// When the program polled its completion.
    pub polled_ns: Option<u64>,
    /// What kept it from going on, in order.
    pub setbacks: Vec<Setback>,
}

impl Message {
    /// The last moment that is known of it.
    pub fn last_ns(&self) -> u64 {
        let ended = self.end.map(|end| end.at_ns);
        let known = [self.first_packet_ns, self.last_packet_ns, self.acknowledged_ns, ended, self.polled_ns];
        known.into_iter().flatten().fold(self.posted_ns, u64::max)
    }
}

/// Something that kept a message from going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setback {
    /// When.
    pub at_ns: u64,
    /// What.
    pub kind: SetbackKind,
    /// It was about a packet of this message; else of one before it on the queue pair.
    pub is_own: bool,
    /// The last time before it at which a packet of the queue pair's requester was sent.
    pub silent_since_ns: u64,
}

/// What kept a message from going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetbackKind {
    /// The acknowledgement timer expired.
    TimedOut {
        /// The attribute `timeout`.
        timeout: u8,
        /// Retries that were left.
        retries_left: u8,
    },
    /// The peer was silent for longer than its answers take, on a path that is known to lose packets.
    Silence,
    /// The peer missed a packet, and said so.
    SequenceNak,
    /// A later answer showed that one was lost.
    MissingAnswer,
    /// The peer had no receive request.
    ReceiverNotReady {
        /// For how long nothing was sent, in ns.
        wait_ns: u64,
        /// Retries that were left; 7 means for ever.
        retries_left: u8,
    },
    /// The peer's process had no processor.
    PeerStarved,
}

/// A receive request that completed.
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// Of the request.
    pub wr_id: u64,
    /// When it was posted, if to this queue pair.
    pub posted_ns: Option<u64>,
    /// How it ended.
    pub end: RequestEnd,
    /// Bytes of the message.
    pub bytes: u32,
    /// When the program polled its completion.
    pub polled_ns: Option<u64>,
}

/// A packet, where it was sent or where it arrived.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// When.
    pub at_ns: u64,
    /// It was sent; else it arrived.
    pub is_sent: bool,
    /// A fault plan lost it.
    pub is_lost: bool,
    /// It was dropped on arrival.
    pub is_dropped: bool,
    /// Of one that was sent: 0: requester; 1: responder; 2: congestion notification.
    pub side: u8,
    /// Its opcode on the wire.
    pub opcode: u8,
    /// Its PSN.
    pub psn: u32,
    /// Bytes from the BTH to the ICRC.
    pub length: u32,
    /// Of one that was sent: which transmission of this PSN it is, from 1.
    pub transmission: u32,
    /// Of one that was sent: the message that it belongs to, or answers.
    pub message: u64,
    /// The other queue pair's number: of one that was sent; of a datagram that arrived; else 0.
    pub other_qpn: u32,
    /// Its way: an index in [`QueuePair::ways`]; none if the trace does not tell.
    pub way: Option<u32>,
}

/// What a moment is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MomentKind {
    /// The state of a queue pair.
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
    /// A packet that was dropped, repeated or out of turn.
    Drop,
    /// A NAK or a congestion notification.
    Refusal,
    /// What the requester does about loss.
    Recovery,
    /// Something that went wrong, for the operator.
    Log,
    /// Records are missing.
    Missing,
}

impl MomentKind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            MomentKind::State => "state",
            MomentKind::Cm => "cm",
            MomentKind::Call => "call",
            MomentKind::AsyncEvent => "async event",
            MomentKind::CompletionEvent => "completion event",
            MomentKind::Fault => "fault",
            MomentKind::Drop => "drop",
            MomentKind::Refusal => "refusal",
            MomentKind::Recovery => "recovery",
            MomentKind::Log => "log",
            MomentKind::Missing => "missing",
        }
    }
}

/// Something that happened at one time.
#[derive(Debug, Clone)]
pub struct Moment {
    /// When.
    pub at_ns: u64,
    /// What it is about.
    pub kind: MomentKind,
    /// What happened, in words.
    pub text: String,
}

/// Where a packet is: the indices of its process, of its queue pair, and of itself there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketIndex {
    /// Of the process.
    pub process: usize,
    /// Of the queue pair.
    pub queue_pair: usize,
    /// Of the packet.
    pub packet: usize,
}

/// A packet that was sent here and arrived there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrow {
    /// Where it was sent.
    pub from: PacketIndex,
    /// Where it arrived.
    pub to: PacketIndex,
}

//! Events of a queue pair: the protocol's part of the device's one stream of events.
//!
//! The protocol reports everything that it does with [`Host::emit`](crate::host::Host::emit): an event
//! borrows what it describes, and making one allocates nothing. The counter that the host increments follows
//! from the event ([`QpEvent::counter`]), so that counters and other subscribers cannot disagree. Before a
//! frequent event is put together, the protocol asks [`Host::listens`](crate::host::Host::listens) for its
//! [`Topic`].
//!
//! These are not the asynchronous events of verbs ([`AsyncEventType`](crate::types::AsyncEventType)).

mod identity;
mod text;

use crate::path::{Flow, Path};
use crate::types::{
    Cause, Counter, MrcBreach, MrcLossProof, Peer, QpState, RecvRequest, RemoteRange, SendOpcode,
    SendRequest, WorkCompletion,
};
use crate::wire::{NakCode, Opcode, OperationClass, Packet, Psn, Qpn, Syndrome};

pub use identity::{OutgoingPacket, PacketIdentity, PacketSide, Transmissions};

/// Subject of an event, by which subscribers choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Topic {
    /// Changes of state.
    States,
    /// Requests posted by the program.
    Posts,
    /// Packets sent and received, answers apart; frequent.
    Packets,
    /// Packets of answers, sent and received; frequent. A subscriber of these has to subscribe to
    /// [`Topic::Packets`] too.
    Answers,
    /// Packets that were dropped, repeated or out of turn.
    Drops,
    /// ACK and NAK traffic that refuses, and congestion notifications.
    Refusals,
    /// Reaction of the requester to loss: timers, repetitions, waits.
    Recovery,
    /// Requests completed.
    Completions,
    /// Accesses of peers to registered memory.
    Accesses,
    /// Messages for the operator.
    Log,
}

impl Topic {
    /// Number of topics of the protocol: a host numbers its own ones from here on.
    pub const COUNT: u32 = Topic::Log as u32 + 1;

    /// Returns the topic as a bit of a set.
    #[inline]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Component that changed the state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateChangeActor {
    /// The program, by `ibv_modify_qp`.
    Program,
    /// The requester: a send request failed.
    Requester,
    /// The responder: a request of the peer, or a receive request, failed.
    Responder,
    /// The device: something that the queue pair uses failed.
    Device,
}

/// Reason why the requester sends packets again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetransmitReason {
    /// The acknowledgement timer expired.
    Timeout,
    /// The path is known to lose packets, and the peer was silent for longer than its answers take.
    Silence,
    /// The peer sent a sequence NAK.
    SequenceNak,
    /// The peer answered a later request: an earlier answer was lost.
    MissingAnswer,
    /// The peer had no receive request.
    ReceiverNotReady,
}

/// An event of a queue pair.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum QpEvent<'a> {
    /// The state changed.
    StateChanged {
        /// State before.
        from: QpState,
        /// State after.
        to: QpState,
        /// Component that changed the state.
        by: StateChangeActor,
        /// Ordinal of the connection: the number of resets before it.
        connection: u32,
        /// Peer that the queue pair is connected to.
        peer: Option<Peer>,
        /// Requests that the send queue has room for.
        requests: u32,
        /// READs and atomics that may be outstanding: `max_rd_atomic`.
        reads: u8,
    },
    /// The path leaves from another UDP source port than the one computed from its flow label or its numbers:
    /// another program has that port, or the process has as many as it may have.
    SourcePortReplaced {
        /// Port that was computed.
        computed: u16,
        /// Port that is used.
        given: u16,
    },
    /// A send request was posted.
    SendPosted {
        /// Identifier that the program gave the request.
        wr_id: u64,
        /// Ordinal of the request since the queue pair was reset.
        message: u64,
        /// Operation of the request.
        opcode: SendOpcode,
        /// Length of the request in bytes.
        length_bytes: u32,
        /// PSN of the first packet.
        psn: Psn,
        /// PSNs that the request takes.
        packet_count: u32,
        /// True if the request makes a completion when it succeeds.
        signaled: bool,
        /// True if the payload was copied when the request was posted.
        inline: bool,
        /// The request as it was posted.
        request: &'a SendRequest<'a>,
    },
    /// A receive request was posted.
    RecvPosted {
        /// The request.
        request: &'a RecvRequest<'a>,
    },
    /// A packet was given to the device to be sent.
    PacketSent {
        /// Identity of the packet.
        identity: PacketIdentity,
        /// Opcode of the packet.
        opcode: Opcode,
        /// PSN of the packet.
        psn: Psn,
        /// Bytes from the BTH to the ICRC.
        length_bytes: u32,
        /// Number of the queue pair that the packet is for.
        destination: Qpn,
        /// Path of the packet.
        path: &'a Path,
    },
    /// A packet for the queue pair arrived; it is not checked yet.
    PacketReceived {
        /// True if the opcode is that of an answer of the other end's responder.
        is_answer: bool,
        /// Opcode of the packet.
        opcode: Opcode,
        /// PSN of the packet.
        psn: Psn,
        /// PSN relative to the first of its direction, modulo 2^24; `None` while there is no first one.
        relative_psn: Option<u32>,
        /// Bytes from the BTH to the ICRC.
        length_bytes: u32,
        /// Number of the queue pair that sent a datagram; `None` for other packets.
        source: Option<Qpn>,
        /// Addresses and ports that the packet arrived with.
        flow: &'a Flow,
    },
    /// The peer acknowledged all PSNs before one, some of them for the first time.
    Acknowledged {
        /// First PSN without an acknowledgement.
        before: Psn,
    },
    /// The requester's measurements of the path, reported when an acknowledgement arrived, at most once a
    /// millisecond.
    Measured {
        /// Round trip time, smoothed, in ns; `None` before the first sample.
        rtt_ns: Option<u64>,
        /// Request packets that may be unacknowledged.
        window_packets: u32,
        /// Request packets that were unacknowledged before the acknowledgement came.
        in_flight_packets: u32,
    },
    /// The rate of the packets changed; reported when the next packet leaves, or a CNP arrives.
    RateChanged {
        /// Current rate, in bit/s.
        rate: u64,
        /// Rate that it grows to, in bit/s.
        target: u64,
        /// Estimate of congestion, in units of 2^-20.
        alpha: u32,
    },
    /// The paths that an MRC queue pair has in a plane when it begins to send.
    PathsMade {
        /// Number of the plane, from 0.
        plane: u8,
        /// Number of planes of the device.
        planes: u8,
        /// Number of paths.
        paths: u32,
    },
    /// The state of a path of an MRC queue pair changed.
    PathChanged {
        /// UDP source port of the path.
        source_port: u16,
        /// Plane of the path.
        plane: u8,
        /// New state: 0 GOOD, 1 SKIP, 2 ASSUMED_BAD, 3 DENIED.
        state: u8,
    },
    /// A packet of an MRC queue pair counts as lost: it is sent again, by another path.
    PacketLost {
        /// PSN of the packet.
        psn: Psn,
        /// UDP source port of the path that its last copy took.
        source_port: u16,
        /// Time since this copy was sent, in ns.
        age_ns: u64,
        /// Way in which the loss was found.
        proof: MrcLossProof,
    },
    /// A packet was dropped.
    Dropped {
        /// Counter of the drop, whose name `pumice stat` prints.
        reason: Counter,
        /// Opcode of the packet.
        opcode: Opcode,
        /// PSN of the packet.
        psn: Psn,
    },
    /// A request arrived after a gap in the PSNs.
    OutOfSequence {
        /// PSN of the packet.
        psn: Psn,
        /// PSN that was expected.
        expected: Psn,
    },
    /// A request arrived that was executed before.
    DuplicateRequest {
        /// Opcode of the request.
        opcode: Opcode,
        /// PSN of the packet.
        psn: Psn,
    },
    /// The responder queued a NAK.
    NakSent {
        /// Kind of the NAK.
        syndrome: Syndrome,
        /// PSN of the packet.
        psn: Psn,
    },
    /// A NAK arrived.
    NakReceived {
        /// Kind of the NAK.
        syndrome: Syndrome,
        /// PSN of the packet.
        psn: Psn,
    },
    /// An answer shows that an earlier one was lost.
    ImpliedNak {
        /// PSN whose answer is missing.
        psn: Psn,
    },
    /// A packet arrived that a switch marked as congested.
    CongestionMarked {
        /// PSN of the packet.
        psn: Psn,
    },
    /// A rule of MRC was broken.
    RuleBroken(MrcBreach),
    /// A congestion notification was sent.
    CnpSent,
    /// A congestion notification arrived.
    CnpReceived,
    /// All packets from a PSN on are sent again.
    SentAgain {
        /// First PSN that is sent again.
        psn: Psn,
        /// PSNs that were outstanding.
        packet_count: u32,
        /// Reason of the repetition.
        why: RetransmitReason,
    },
    /// The acknowledgement timer expired.
    TimedOut {
        /// Oldest PSN without an answer.
        psn: Psn,
        /// Retries that are left.
        retries_left: u8,
        /// Attribute `timeout` of the queue pair: the timer is at least 4.096 µs × 2^`timeout`. That of MRC,
        /// whose unit is a quarter of this, is converted.
        timeout: u8,
    },
    /// The peer was silent for longer than its answers take, on a path that is known to lose packets.
    FellSilent {
        /// Oldest PSN without an answer.
        psn: Psn,
    },
    /// The acknowledgement timer expired without using up a retry: the peer's process on this host had no
    /// processor.
    PeerStarved {
        /// Oldest PSN without an answer.
        psn: Psn,
    },
    /// The peer has no receive request posted: the requester pauses.
    ReceiverNotReady {
        /// PSN that it refused.
        psn: Psn,
        /// Retries that are left; 7 means for ever.
        retries_left: u8,
        /// Length of the pause in nanoseconds, as the peer asks.
        wait_ns: u64,
    },
    /// A request completed.
    Completed {
        /// Completion of the request.
        completion: &'a WorkCompletion,
        /// Handle of the completion queue.
        cq: u32,
        /// Send queue entries that a send completion frees: its own and those of the unsignaled requests
        /// before it. 0 for a receive request.
        released: u32,
    },
    /// The peer writes, changes or reads registered memory: the first packet of its WRITE, or its atomic, was
    /// executed, or its READ accepted.
    RemoteAccess {
        /// Kind of operation: a WRITE, an atomic or a READ.
        class: OperationClass,
        /// Whole range of the request.
        range: RemoteRange,
        /// True if the request has only this packet.
        ends: bool,
    },
    /// The last packet of a WRITE was executed, for which there was an [`QpEvent::RemoteAccess`] before.
    RemoteWriteEnded {
        /// True if an immediate came with it, so that a receive request completes.
        has_imm: bool,
    },
    /// An error, described for the operator.
    Logged(&'a Cause),
}

impl QpEvent<'_> {
    /// Creates the event of a dropped packet; the counter says why.
    pub const fn dropped(packet: &Packet<'_>, reason: Counter) -> QpEvent<'static> {
        QpEvent::Dropped { reason, opcode: packet.bth().opcode, psn: packet.bth().psn }
    }

    /// Returns the topic of the event.
    #[inline]
    pub const fn topic(&self) -> Topic {
        match self {
            QpEvent::StateChanged { .. } | QpEvent::SourcePortReplaced { .. } | QpEvent::PathsMade { .. } => {
                Topic::States
            }
            QpEvent::SendPosted { .. } | QpEvent::RecvPosted { .. } => Topic::Posts,
            QpEvent::PacketSent { identity: PacketIdentity { side: PacketSide::Responder, .. }, .. }
            | QpEvent::PacketReceived { is_answer: true, .. } => Topic::Answers,
            QpEvent::PacketSent { .. }
            | QpEvent::PacketReceived { .. }
            | QpEvent::Acknowledged { .. }
            | QpEvent::Measured { .. }
            | QpEvent::RateChanged { .. } => Topic::Packets,
            QpEvent::Dropped { .. } | QpEvent::OutOfSequence { .. } | QpEvent::DuplicateRequest { .. } => {
                Topic::Drops
            }
            QpEvent::NakSent { .. }
            | QpEvent::NakReceived { .. }
            | QpEvent::ImpliedNak { .. }
            | QpEvent::CongestionMarked { .. }
            | QpEvent::RuleBroken(_)
            | QpEvent::CnpSent
            | QpEvent::CnpReceived => Topic::Refusals,
            QpEvent::SentAgain { .. }
            | QpEvent::PacketLost { .. }
            | QpEvent::PathChanged { .. }
            | QpEvent::TimedOut { .. }
            | QpEvent::FellSilent { .. }
            | QpEvent::PeerStarved { .. }
            | QpEvent::ReceiverNotReady { .. } => Topic::Recovery,
            QpEvent::Completed { .. } => Topic::Completions,
            QpEvent::RemoteAccess { .. } | QpEvent::RemoteWriteEnded { .. } => Topic::Accesses,
            QpEvent::Logged(_) => Topic::Log,
        }
    }

    /// Returns the counter of the event, and by how much it grows.
    #[inline]
    pub const fn counter(&self) -> Option<(Counter, u64)> {
        let counter = match self {
            QpEvent::Dropped { reason, .. } => *reason,
            QpEvent::OutOfSequence { .. } => Counter::RxOutOfSequence,
            QpEvent::DuplicateRequest { .. } => Counter::RxDuplicateRequest,
            QpEvent::NakSent { syndrome, .. } => match syndrome {
                Syndrome::RnrNak { .. } => Counter::TxRnrNak,
                Syndrome::Nak(NakCode::Sequence) => Counter::TxNakSequence,
                Syndrome::Nak(NakCode::RemoteAccess) => Counter::TxNakAccess,
                Syndrome::Nak(NakCode::RemoteOperation) => Counter::TxNakOperation,
                _ => Counter::TxNakInvalid,
            },
            QpEvent::NakReceived { syndrome, .. } => match syndrome {
                Syndrome::RnrNak { .. } => Counter::RxRnrNak,
                Syndrome::Nak(NakCode::Sequence) => Counter::RxNakSequence,
                _ => Counter::RxNakFatal,
            },
            QpEvent::ImpliedNak { .. } => Counter::RxImpliedNak,
            QpEvent::CongestionMarked { .. } => Counter::RxCongestionMarked,
            QpEvent::CnpSent => Counter::TxCnp,
            QpEvent::CnpReceived => Counter::RxCnp,
            QpEvent::SentAgain { packet_count, .. } => {
                return Some((Counter::RetransmittedPackets, *packet_count as u64));
            }
            QpEvent::PacketLost { .. } => Counter::RetransmittedPackets,
            QpEvent::TimedOut { .. } => Counter::Timeout,
            QpEvent::FellSilent { .. } => Counter::EarlyRetransmit,
            QpEvent::PeerStarved { .. } => Counter::StarvedPeer,
            QpEvent::StateChanged { .. }
            | QpEvent::SourcePortReplaced { .. }
            | QpEvent::PathsMade { .. }
            | QpEvent::PathChanged { .. }
            | QpEvent::SendPosted { .. }
            | QpEvent::RecvPosted { .. }
            | QpEvent::PacketSent { .. }
            | QpEvent::PacketReceived { .. }
            | QpEvent::Acknowledged { .. }
            | QpEvent::Measured { .. }
            | QpEvent::RateChanged { .. }
            | QpEvent::ReceiverNotReady { .. }
            | QpEvent::Completed { .. }
            | QpEvent::RemoteAccess { .. }
            | QpEvent::RemoteWriteEnded { .. }
            | QpEvent::RuleBroken(_)
            | QpEvent::Logged(_) => return None,
        };
        Some((counter, 1))
    }
}

//! What happens to a queue pair: the protocol's part of the device's one stream of events.
//!
//! The protocol says everything that it does with [`Host::emit`](crate::host::Host::emit): an event borrows
//! what it tells of, and making one allocates nothing. What the host counts follows from the event
//! ([`QpEvent::counter`]), so that counters and other subscribers cannot disagree. Before a frequent event is
//! put together, the protocol asks [`Host::listens`](crate::host::Host::listens) for its [`Topic`].
//!
//! These are not the asynchronous events of verbs ([`AsyncEventType`](crate::types::AsyncEventType)).

mod identity;

use core::fmt;

use crate::path::{Flow, Path};
use crate::types::{
    Cause, Counter, Peer, QpState, RecvRequest, RemoteRange, SendOpcode, SendRequest, WcStatus,
    WorkCompletion,
};
use crate::wire::{NakCode, Opcode, OperationClass, Packet, Psn, Qpn, Syndrome};

pub use identity::{Departure, PacketIdentity, Side, Transmissions};

/// What an event is about: subscribers choose by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Topic {
    /// Changes of state.
    States,
    /// Requests posted by the program.
    Posts,
    /// Packets sent and received, answers apart; frequent.
    Packets,
    /// Packets of answers, sent and received; frequent. Who wants these has to want those of `Packets`.
    Answers,
    /// Packets that were dropped, repeated or out of turn.
    Drops,
    /// ACK and NAK traffic that refuses, and congestion notifications.
    Refusals,
    /// What the requester does about loss: timers, repetitions, waits.
    Recovery,
    /// Requests completed.
    Completions,
    /// What peers do with registered memory.
    Accesses,
    /// Sentences for the operator.
    Log,
}

impl Topic {
    /// The number of topics of the protocol: a host numbers its own ones from here on.
    pub const COUNT: u32 = Topic::Log as u32 + 1;

    /// The topic as a bit of a set.
    #[inline]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Who changed the state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// The program, by `ibv_modify_qp`.
    Program,
    /// The requester: a send request failed.
    Requester,
    /// The responder: a request of the peer, or a receive request, failed.
    Responder,
    /// The device: something that the queue pair uses failed.
    Device,
}

/// Why the requester sends packets again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// The acknowledgement timer expired.
    Timeout,
    /// The path is known to lose packets, and the peer was silent for longer than its answers take.
    Silence,
    /// The peer sent a sequence NAK.
    SequenceNak,
    /// The peer answered something later: an earlier answer was lost.
    MissingAnswer,
    /// The peer had no receive request.
    ReceiverNotReady,
}

/// Something that happened to a queue pair.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum QpEvent<'a> {
    /// Its state changed.
    StateChanged {
        /// Before.
        from: QpState,
        /// After.
        to: QpState,
        /// Who changed it.
        by: Actor,
        /// The ordinal of its connection: how often it was reset before.
        connection: u32,
        /// The peer that it is connected to.
        peer: Option<Peer>,
        /// Requests that its send queue has room for.
        requests: u32,
        /// READs and atomics that it may have under way: `max_rd_atomic`.
        reads: u8,
    },
    /// Its path leaves from another UDP source port than the one that its flow label or its numbers say:
    /// another program has that one, or the process has as many as it may have.
    SourcePortReplaced {
        /// The port that was computed.
        computed: u16,
        /// The port that it sends from.
        given: u16,
    },
    /// A send request was posted.
    SendPosted {
        /// Of the request.
        wr_id: u64,
        /// The ordinal of the request since the queue pair was reset.
        message: u64,
        /// Its operation.
        opcode: SendOpcode,
        /// Its length.
        length_bytes: u32,
        /// PSN of its first packet.
        psn: Psn,
        /// PSNs that it takes.
        packet_count: u32,
        /// It makes a completion when it succeeds.
        signaled: bool,
        /// Its payload was taken when it was posted.
        inline: bool,
        /// The request as it was given.
        request: &'a SendRequest<'a>,
    },
    /// A receive request was posted.
    RecvPosted {
        /// The request.
        request: &'a RecvRequest<'a>,
    },
    /// A packet was given to the device to be sent.
    PacketSent {
        /// Which packet of which message it is.
        identity: PacketIdentity,
        /// Its opcode.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
        /// Bytes from the BTH to the ICRC.
        length_bytes: u32,
        /// The queue pair that it is for.
        destination: Qpn,
        /// Its way.
        path: &'a Path,
    },
    /// A packet arrived for it, before anything is checked.
    PacketReceived {
        /// It is an answer of the responder at the other end, by its opcode.
        is_answer: bool,
        /// Its opcode.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
        /// The PSN relative to the first of its direction, modulo 2^24; `None` while there is no first one.
        relative_psn: Option<u32>,
        /// Bytes from the BTH to the ICRC.
        length_bytes: u32,
        /// Of a datagram: the queue pair that sent it.
        source: Option<Qpn>,
        /// Where it came from.
        flow: &'a Flow,
    },
    /// The peer has acknowledged what is before a PSN that it had not acknowledged before.
    Acknowledged {
        /// The first PSN without an acknowledgement.
        before: Psn,
    },
    /// What the requester knows of the path: when an acknowledgement came, and at most once a millisecond.
    Measured {
        /// Round trip time, smoothed, in ns; none before the first sample.
        rtt_ns: Option<u64>,
        /// Request packets that may be unacknowledged.
        window_packets: u32,
        /// Request packets that were unacknowledged before the acknowledgement came.
        in_flight_packets: u32,
    },
    /// The rate of its packets changed; told when the next packet leaves, or a CNP comes.
    RateChanged {
        /// The current rate, in bit/s.
        rate: u64,
        /// The rate that it grows to, in bit/s.
        target: u64,
        /// The estimate of congestion, in 2^-20.
        alpha: u32,
    },
    /// A packet was dropped.
    Dropped {
        /// The counter that has it, by the name that `pumice stat` prints.
        reason: Counter,
        /// What it was.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
    },
    /// A request came after a gap in the PSNs.
    OutOfSequence {
        /// Its PSN.
        psn: Psn,
        /// The PSN that was expected.
        expected: Psn,
    },
    /// A request came that was executed before.
    DuplicateRequest {
        /// What it asks for.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
    },
    /// The responder queued a NAK.
    NakSent {
        /// Its kind.
        syndrome: Syndrome,
        /// Its PSN.
        psn: Psn,
    },
    /// A NAK came.
    NakReceived {
        /// Its kind.
        syndrome: Syndrome,
        /// Its PSN.
        psn: Psn,
    },
    /// An answer shows that an earlier one was lost.
    ImpliedNak {
        /// The PSN whose answer is missing.
        psn: Psn,
    },
    /// A packet came that a switch marked as congested.
    CongestionMarked {
        /// Its PSN.
        psn: Psn,
    },
    /// A congestion notification was sent.
    CnpSent,
    /// A congestion notification came.
    CnpReceived,
    /// Everything from a PSN on is sent again.
    SentAgain {
        /// The first one.
        psn: Psn,
        /// PSNs that were under way.
        packet_count: u32,
        /// Why.
        why: Repetition,
    },
    /// The acknowledgement timer expired.
    TimedOut {
        /// The oldest PSN without an answer.
        psn: Psn,
        /// Retries that are left.
        retries_left: u8,
        /// The queue pair's attribute `timeout`: 4.096 µs × 2^`timeout` is waited for at least.
        timeout: u8,
    },
    /// The peer was silent for longer than its answers take, on a path that is known to lose packets.
    FellSilent {
        /// The oldest PSN without an answer.
        psn: Psn,
    },
    /// The acknowledgement timer expired and costs no retry: the peer's process on this host had no
    /// processor.
    PeerStarved {
        /// The oldest PSN without an answer.
        psn: Psn,
    },
    /// The peer has no receive request posted: nothing is sent for a while.
    ReceiverNotReady {
        /// PSN that it refused.
        psn: Psn,
        /// Retries that are left; 7 means for ever.
        retries_left: u8,
        /// For how long nothing is sent, as the peer asks.
        wait_ns: u64,
    },
    /// A request completed.
    Completed {
        /// Its completion.
        completion: &'a WorkCompletion,
        /// Handle of the completion queue.
        cq: u32,
        /// Of a send request: requests that it ends, itself and the unsignaled ones before it. Else 0.
        released: u32,
    },
    /// The peer writes or changes registered memory: the first packet of its request, or the only one, was
    /// executed.
    RemoteAccess {
        /// A WRITE or an atomic.
        class: OperationClass,
        /// The whole range of the request.
        range: RemoteRange,
        /// It was the only packet.
        ends: bool,
    },
    /// The last packet of a WRITE was executed, of which there was an [`QpEvent::RemoteAccess`] before.
    RemoteWriteEnded {
        /// An immediate came with it, so a receive request completes.
        has_imm: bool,
    },
    /// Something went wrong, in words for the operator.
    Logged(&'a Cause),
}

impl QpEvent<'_> {
    /// A packet is dropped; the counter says why.
    pub const fn dropped(packet: &Packet<'_>, reason: Counter) -> QpEvent<'static> {
        QpEvent::Dropped { reason, opcode: packet.bth().opcode, psn: packet.bth().psn }
    }

    /// What it is about.
    #[inline]
    pub const fn topic(&self) -> Topic {
        match self {
            QpEvent::StateChanged { .. } | QpEvent::SourcePortReplaced { .. } => Topic::States,
            QpEvent::SendPosted { .. } | QpEvent::RecvPosted { .. } => Topic::Posts,
            QpEvent::PacketSent { identity: PacketIdentity { side: Side::Responder, .. }, .. }
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
            | QpEvent::CnpSent
            | QpEvent::CnpReceived => Topic::Refusals,
            QpEvent::SentAgain { .. }
            | QpEvent::TimedOut { .. }
            | QpEvent::FellSilent { .. }
            | QpEvent::PeerStarved { .. }
            | QpEvent::ReceiverNotReady { .. } => Topic::Recovery,
            QpEvent::Completed { .. } => Topic::Completions,
            QpEvent::RemoteAccess { .. } | QpEvent::RemoteWriteEnded { .. } => Topic::Accesses,
            QpEvent::Logged(_) => Topic::Log,
        }
    }

    /// The counter that has it, and by how much it grows.
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
            QpEvent::TimedOut { .. } => Counter::Timeout,
            QpEvent::FellSilent { .. } => Counter::EarlyRetransmit,
            QpEvent::PeerStarved { .. } => Counter::StarvedPeer,
            QpEvent::StateChanged { .. }
            | QpEvent::SourcePortReplaced { .. }
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
            | QpEvent::Logged(_) => return None,
        };
        Some((counter, 1))
    }
}

impl fmt::Display for QpEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QpEvent::StateChanged { from, to, .. } => write!(f, "state {} to {}", from.name(), to.name()),
            QpEvent::SourcePortReplaced { computed, given } => {
                write!(f, "send from UDP port {given}: {computed} is not to be had")
            }
            QpEvent::SendPosted { wr_id, opcode, length_bytes, psn, packet_count, .. } => write!(
                f,
                "post {}  wr_id {wr_id:#x}  psn {}  {packet_count} packets  {length_bytes} B",
                opcode.name(),
                psn.value()
            ),
            QpEvent::RecvPosted { request } => {
                let bytes: u64 = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
                write!(f, "post RECV  wr_id {:#x}  {bytes} B", request.wr_id)
            }
            QpEvent::PacketSent { identity, opcode, psn, length_bytes, .. } => {
                write!(f, "send {opcode}  psn {}  {length_bytes} B  {identity}", psn.value())
            }
            QpEvent::PacketReceived { opcode, psn, length_bytes, .. } => {
                write!(f, "receive {opcode}  psn {}  {length_bytes} B", psn.value())
            }
            QpEvent::Acknowledged { before } => write!(f, "acknowledged before psn {}", before.value()),
            QpEvent::Measured { rtt_ns, window_packets, in_flight_packets } => {
                write!(f, "{in_flight_packets} packets in flight  window {window_packets}")?;
                match rtt_ns {
                    Some(ns) => write!(f, "  round trip {ns} ns"),
                    None => Ok(()),
                }
            }
            QpEvent::RateChanged { rate, target, .. } => {
                write!(f, "rate {rate} bit/s  target {target} bit/s")
            }
            QpEvent::Dropped { reason, opcode, psn } => {
                write!(f, "drop {opcode}  psn {}  {reason:?}", psn.value())
            }
            QpEvent::OutOfSequence { psn, expected } => {
                write!(f, "out of sequence  psn {}  expected {}", psn.value(), expected.value())
            }
            QpEvent::DuplicateRequest { opcode, psn } => write!(f, "repeated {opcode}  psn {}", psn.value()),
            QpEvent::NakSent { syndrome, psn } => write!(f, "send {syndrome:?}  psn {}", psn.value()),
            QpEvent::NakReceived { syndrome, psn } => write!(f, "receive {syndrome:?}  psn {}", psn.value()),
            QpEvent::ImpliedNak { psn } => write!(f, "answer missing  psn {}", psn.value()),
            QpEvent::CongestionMarked { psn } => write!(f, "congestion marked  psn {}", psn.value()),
            QpEvent::CnpSent => f.write_str("send CNP"),
            QpEvent::CnpReceived => f.write_str("receive CNP"),
            QpEvent::SentAgain { psn, packet_count, .. } => {
                write!(f, "send again  psn {}  {packet_count} packets", psn.value())
            }
            QpEvent::TimedOut { psn, retries_left, .. } => {
                write!(f, "timer expired  psn {}  {retries_left} retries left", psn.value())
            }
            QpEvent::FellSilent { psn } => write!(f, "peer silent  psn {}", psn.value()),
            QpEvent::PeerStarved { psn } => write!(f, "peer without a processor  psn {}", psn.value()),
            QpEvent::ReceiverNotReady { psn, retries_left, .. } => {
                write!(f, "receiver not ready  psn {}  {retries_left} retries left", psn.value())
            }
            QpEvent::Completed { completion, cq, .. } => {
                let WorkCompletion { wr_id, status, opcode, byte_len, .. } = completion;
                let direction = if opcode.is_recv() { "RECV" } else { "SEND" };
                write!(f, "complete {direction}  wr_id {wr_id:#x}  {}  cq {cq}", status.name())?;
                if *status == WcStatus::Success { write!(f, "  {byte_len} B") } else { Ok(()) }
            }
            QpEvent::RemoteAccess { class, range, .. } => {
                write!(f, "peer {class:?}  {} B at {:#x}", range.length_bytes, range.address)
            }
            QpEvent::RemoteWriteEnded { .. } => f.write_str("peer Write ends"),
            QpEvent::Logged(cause) => write!(f, "{cause}"),
        }
    }
}

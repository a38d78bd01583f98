//! Causes of a queue pair's failure, or of the drop of something that arrived: messages for the operator.

use core::fmt;
use core::net::IpAddr;

use super::failure::{FailedSend, FailureDetail};
use super::{PostError, QpState, SendOpcode, WcStatus};
use crate::wire::{Opcode, Psn, Qpn};

/// Reason why a queue pair went to ERR or dropped a message: one sentence for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A send request failed.
    SendFailed(FailedSend),
    /// A posted send request cannot be executed: it will complete with this status when its turn comes.
    RequestFaulty {
        /// Identifier that the program gave the request.
        wr_id: u64,
        /// Status of its completion.
        status: WcStatus,
        /// Fault of the request.
        error: PostError,
    },
    /// A READ or atomic was posted to a queue pair whose `max_rd_atomic` is 0. It is executed.
    NoReadDepth {
        /// Identifier that the program gave the request.
        wr_id: u64,
        /// Operation of the request.
        opcode: SendOpcode,
    },
    /// A completion queue that was made to ignore overruns was full, and a completion was lost.
    CompletionLost {
        /// Handle of the completion queue.
        cq: u32,
        /// Number of entries of the completion queue.
        depth: u32,
    },
    /// The queue pair refused a request of the peer.
    RequestRefused {
        /// NAK syndrome sent; a failed remote invalidate is not answered.
        syndrome: Option<u8>,
        /// PSN that was refused.
        psn: Psn,
        /// Fault of the request.
        reason: &'static str,
        /// Memory, receive request or lengths that the fault concerns.
        detail: FailureDetail,
    },
    /// A receive request of an unreliable service could not hold its message (UC, UD).
    ReceiveFailed {
        /// Status of its completion.
        status: WcStatus,
        /// PSN of the packet.
        psn: Psn,
        /// Fault of the receive request.
        detail: FailureDetail,
    },
    /// A received message was dropped (UC, UD).
    MessageDropped {
        /// PSN of the packet.
        psn: Psn,
        /// Fault of the message.
        reason: &'static str,
        /// Lengths that the fault concerns.
        detail: FailureDetail,
    },
    /// A datagram was dropped because of its Q_Key (UD).
    WrongQkey {
        /// Queue pair that sent it.
        source: Qpn,
        /// Q_Key of the datagram.
        given: u32,
        /// The Q_Key of this queue pair.
        expected: u32,
    },
    /// A request was dropped before it could be executed, and the peer does not learn why.
    PacketDropped {
        /// Address that sent the request.
        source: IpAddr,
        /// Opcode of the request.
        opcode: Opcode,
        /// PSN of the request.
        psn: Psn,
        /// Reason of the drop.
        reason: DropReason,
    },
    /// A packet of a connection came from another UDP port than the peer's, and was dropped.
    WrongPort {
        /// PSN of the packet.
        psn: Psn,
        /// Port that the packet came from.
        given: u16,
        /// Port of the peer, if it is known.
        expected: Option<u16>,
    },
    /// The application asked for RESET while send requests were under way whose completions it waits for.
    DroppedByReset {
        /// Number of requests that were dropped.
        requests: u64,
    },
    /// The application asked for ERR.
    Modified,
    /// A fault plan asked for ERR.
    Planned,
    /// The completion queue overran.
    CqOverrun {
        /// Handle of the completion queue, as in `ibv_cq.handle`.
        cq: u32,
        /// Completions that the completion queue has room for.
        depth: u32,
        /// Requests of this queue pair that complete there.
        completes: CqUse,
    },
}

/// Reason why a request was dropped without an answer that names the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// No queue pair of this process has that number.
    UnknownQpn {
        /// True if there was such a queue pair: late packets to it are nothing unusual.
        destroyed: bool,
    },
    /// The number belongs to another process, and no queue pair has it now.
    NoProcess,
    /// The queue pair does not receive yet.
    NotReceiving {
        /// State of the queue pair.
        state: QpState,
    },
    /// The queue pair is connected and receives from its peer only.
    NotThePeer {
        /// Address of the peer that it is connected to.
        peer: IpAddr,
    },
    /// The packet was sent to another of this host's addresses than the queue pair has.
    NotItsAddress {
        /// Address that the packet was sent to.
        to: IpAddr,
        /// Source address of the queue pair's path.
        own: IpAddr,
    },
    /// The packet is of another transport service.
    OtherService {
        /// Service of the queue pair.
        own: &'static str,
    },
    /// The packet's P_Key does not match.
    OtherPartition {
        /// P_Key of the packet.
        given: u16,
        /// P_Key of the queue pair.
        own: u16,
    },
    /// The case is [`DropReason::BeforeStart`] or [`DropReason::BeyondStart`], and the peer is the queue pair
    /// itself.
    FromItself,
    /// No request has been received yet, and this one does not begin at the PSN `rq_psn`.
    BeforeStart {
        /// First PSN that is expected.
        expected: Psn,
    },
    /// No request has been received yet, and the same one beyond the first PSN arrives again.
    BeyondStart {
        /// First PSN that is expected.
        expected: Psn,
    },
}

/// Requests of a queue pair that complete in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqUse {
    /// Send requests.
    Sends,
    /// Receive requests.
    Receives,
    /// Send and receive requests.
    Both,
}

impl Cause {
    /// Reports whether the queue pair is in ERR (or SQE) because of this cause; otherwise a message was
    /// dropped.
    pub const fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Cause::MessageDropped { .. }
                | Cause::WrongQkey { .. }
                | Cause::WrongPort { .. }
                | Cause::PacketDropped { .. }
                | Cause::RequestFaulty { .. }
                | Cause::NoReadDepth { .. }
                | Cause::CompletionLost { .. }
                | Cause::DroppedByReset { .. }
        )
    }

    /// Reports whether this also happens in correct programs, so that it matters only to a user who looks for
    /// a problem.
    pub const fn is_usual(&self) -> bool {
        matches!(
            self,
            Cause::Modified | Cause::PacketDropped { reason: DropReason::UnknownQpn { destroyed: true }, .. }
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::SendFailed(failure) => failure.fmt(f),
            Cause::RequestFaulty { wr_id, status, error } => {
                write!(f, "send request {wr_id:#x} will fail with {}: {error}", status.name())
            }
            Cause::NoReadDepth { wr_id, opcode } => write!(
                f,
                "has max_rd_atomic 0, and send request {wr_id:#x} ({}) needs 1 at least: this device takes 0 \
                 for 1, as most adapters do, but on others, as on rdma_rxe, the request waits for ever",
                opcode.name()
            ),
            Cause::CompletionLost { cq, depth } => write!(
                f,
                "completed a request on completion queue {cq}, all of whose {depth} entries were in use: its \
                 oldest completion is overwritten, as IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN has it, and so are \
                 further ones, without a word"
            ),
            Cause::RequestRefused { syndrome, psn, reason, detail } => {
                write!(f, "refused the peer's request at PSN {:#08x} ", psn.value())?;
                match syndrome {
                    Some(syndrome) => write!(f, "with NAK {syndrome:#04x}: {reason}{detail}"),
                    None => write!(f, "without an answer: {reason}{detail}"),
                }
            }
            Cause::ReceiveFailed { status, psn, detail } => write!(
                f,
                "failed with {} at the message at PSN {:#08x}: its receive request cannot hold it{detail}",
                status.name(),
                psn.value()
            ),
            Cause::MessageDropped { psn, reason, detail } => {
                write!(f, "dropped the message at PSN {:#08x}: {reason}{detail}", psn.value())
            }
            Cause::WrongQkey { source, given, expected } => write!(
                f,
                "dropped a datagram of QP {source}: its Q_Key is {given:#010x}, this queue pair's \
                {expected:#010x}"
            ),
            Cause::PacketDropped { source, opcode, psn, reason } => {
                write!(f, "dropped {opcode} from {source} at PSN {:#08x}: {reason}", psn.value())
            }
            Cause::WrongPort { psn, given, expected } => {
                let psn = psn.value();
                write!(f, "dropped a packet at PSN {psn:#08x} from UDP port {given}: ")?;
                match expected {
                    Some(expected) => write!(
                        f,
                        "the peer sends from {expected}; another program on its host may have sent it"
                    ),
                    None => write!(f, "the peer's port is not known yet, and PSNs are being tried"),
                }
            }
            Cause::DroppedByReset { requests } => {
                let were = if *requests == 1 { "request was" } else { "requests were" };
                write!(
                    f,
                    "went to RESET too early: {requests} {were} dropped by ibv_modify_qp to RESET, and no \
                     completion will come; poll the completions first, or go to ERR, which flushes requests"
                )
            }
            Cause::Modified => write!(f, "moved to ERR by modify_qp"),
            Cause::Planned => write!(f, "moved to ERR by a fault plan"),
            Cause::CqOverrun { cq, depth, completes } => write!(
                f,
                "failed: completion queue {cq} of {depth} entries, where its {completes} complete, overran; \
                 poll it more often or make it larger"
            ),
        }
    }
}

impl fmt::Display for CqUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CqUse::Sends => "sends",
            CqUse::Receives => "receives",
            CqUse::Both => "sends and receives",
        })
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DropReason::UnknownQpn { destroyed: false } => f.write_str(
                "this process has no such queue pair; is the number right that the sender was told \
                 (dest_qp_num, or remote_qpn of a datagram)?",
            ),
            DropReason::NoProcess => f.write_str(
                "no process of this host has such a queue pair number: its process has ended, or the sender \
                 was told a wrong dest_qp_num",
            ),
            DropReason::UnknownQpn { destroyed: true } => {
                f.write_str("this process has destroyed the queue pair")
            }
            DropReason::NotReceiving { state } => write!(
                f,
                "in state {} it receives nothing; move it to RTR before its peer sends",
                state.name()
            ),
            DropReason::NotThePeer { peer } => {
                write!(
                    f,
                    "it is connected to {peer}; does the sender use the address whose GID was exchanged?"
                )
            }
            DropReason::NotItsAddress { to, own } => {
                write!(f, "it was sent to {to}, and this end of the connection is {own} (sgid_index)")
            }
            DropReason::OtherService { own } => write!(f, "the queue pair is {own}"),
            DropReason::OtherPartition { given, own } => {
                write!(
                    f,
                    "its P_Key is {given:#06x}, this queue pair's {own:#06x}; compare pkey_index of both"
                )
            }
            DropReason::FromItself => f.write_str(
                "it has sent this itself, because its dest_qp_num is its own number: give it the number of \
                 the peer; are the numbers of both ends exchanged?",
            ),
            DropReason::BeforeStart { expected } => write!(
                f,
                "nothing has arrived before, and the first PSN is to be {:#08x}: rq_psn here is not sq_psn \
                of the \
                 peer",
                expected.value()
            ),
            DropReason::BeyondStart { expected } => write!(
                f,
                "nothing has arrived before, and the first PSN is to be {:#08x}: rq_psn here is not sq_psn \
                of the \
                 peer, or all packets before this one were lost",
                expected.value()
            ),
        }
    }
}

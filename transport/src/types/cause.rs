//! Why a queue pair failed, or why something that arrived was dropped: sentences for the operator.

use core::fmt;
use core::net::IpAddr;

use super::failure::{Detail, FailedSend};
use super::{PostError, QpState, SendOpcode, WcStatus};
use crate::wire::{Opcode, Psn, Qpn};

/// Why a queue pair went to ERR or dropped a message: one sentence for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A send request failed.
    SendFailed(FailedSend),
    /// A posted send request cannot be executed: it will end with this status when its turn comes.
    RequestFaulty {
        /// The request.
        wr_id: u64,
        /// Status of its completion.
        status: WcStatus,
        /// What is wrong with it.
        error: PostError,
    },
    /// A READ or atomic was posted to a queue pair whose `max_rd_atomic` is 0. It is executed.
    NoReadDepth {
        /// The request.
        wr_id: u64,
        /// What it is.
        opcode: SendOpcode,
    },
    /// A completion queue that was made to ignore overruns was full.
    CompletionLost {
        /// The completion queue.
        cq: u32,
        /// Its entries.
        depth: u32,
    },
    /// We refused a request of the peer.
    RequestRefused {
        /// NAK syndrome sent; a failed remote invalidate is not answered.
        syndrome: Option<u8>,
        /// PSN refused.
        psn: Psn,
        /// What was wrong with it.
        reason: &'static str,
        /// The memory, the receive request or the lengths that it is about.
        detail: Detail,
    },
    /// A receive request of an unreliable service could not hold its message (UC, UD).
    ReceiveFailed {
        /// Status of its completion.
        status: WcStatus,
        /// PSN of the packet.
        psn: Psn,
        /// What was wrong.
        detail: Detail,
    },
    /// A received message was dropped (UC, UD).
    MessageDropped {
        /// PSN of the packet.
        psn: Psn,
        /// What was wrong.
        reason: &'static str,
        /// The lengths that it is about.
        detail: Detail,
    },
    /// A datagram was dropped because of its Q_Key (UD).
    WrongQkey {
        /// Queue pair that sent it.
        source: Qpn,
        /// Its Q_Key.
        given: u32,
        /// The Q_Key of this queue pair.
        expected: u32,
    },
    /// A request was dropped before it could be executed, and the peer will not learn why.
    PacketDropped {
        /// The address that sent it.
        source: IpAddr,
        /// What it asks for.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
        /// Why it was dropped.
        reason: DropReason,
    },
    /// A packet of a connection came from another UDP port than the peer's, and was dropped.
    WrongPort {
        /// Its PSN.
        psn: Psn,
        /// The port that it came from.
        given: u16,
        /// The peer's port, if it is known.
        expected: Option<u16>,
    },
    /// The application asked for ERR.
    Modified,
    /// A fault plan asked for ERR.
    Planned,
    /// The completion queue overran.
    CqOverrun {
        /// Its handle, as `ibv_cq.handle` shows it.
        cq: u32,
        /// Completions it has room for.
        depth: u32,
        /// What of this queue pair completes there.
        completes: CqUse,
    },
}

/// Why a request was dropped without an answer that names the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// This process has no queue pair of that number.
    UnknownQpn {
        /// It had one: late packets to it are nothing unusual.
        destroyed: bool,
    },
    /// The number is of another process, and none has it now.
    NoProcess,
    /// The queue pair does not receive yet.
    NotReceiving {
        /// State that it is in.
        state: QpState,
    },
    /// A queue pair that is connected hears its peer only.
    NotThePeer {
        /// Address of the peer that it was connected to.
        peer: IpAddr,
    },
    /// The packet was sent to another of this host's addresses than the queue pair has.
    NotItsAddress {
        /// Where it was sent to.
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
        /// Of the packet.
        given: u16,
        /// Of the queue pair.
        own: u16,
    },
    /// As [`DropReason::BeforeStart`] or [`DropReason::BeyondStart`], and the peer is the queue pair itself.
    FromItself,
    /// Nothing has been received yet, and this request does not begin where `rq_psn` says.
    BeforeStart {
        /// The first PSN that is expected.
        expected: Psn,
    },
    /// Nothing has been received yet, and the same request beyond the first PSN comes again.
    BeyondStart {
        /// The first PSN that is expected.
        expected: Psn,
    },
}

/// Which of a queue pair's requests complete in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CqUse {
    /// Send requests.
    Sends,
    /// Receive requests.
    Receives,
    /// Both.
    Both,
}

impl Cause {
    /// Whether the queue pair is in ERR (or SQE) after it; otherwise a message was dropped.
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
        )
    }

    /// Whether it also happens in correct programs, and so matters only to a user who looks for something.
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
            Cause::ReceiveFailed { status, psn, detail } => {
                let (name, psn) = (status.name(), psn.value());
                write!(
                    f,
                    "failed with {name} at the message at PSN {psn:#08x}: its receive request cannot hold \
                    it{detail}"
                )
            }
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
            Cause::Modified => write!(f, "moved to ERR by modify_qp"),
            Cause::Planned => write!(f, "moved to ERR by a fault plan"),
            Cause::CqOverrun { cq, depth, completes } => write!(
                f,
                "failed: completion queue {cq} of {depth} entries, where its {completes} complete, overran; \
                poll it \
                 more often or make it larger"
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

//! Asynchronous events, and why they were raised.

use core::fmt;

use super::WcStatus;
use crate::wire::Psn;

/// Asynchronous events (`IBV_EVENT_*`) that a software device can raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AsyncEventType {
    /// CQ overrun.
    CqErr = 0,
    /// A completion could not be written.
    QpFatal = 1,
    /// Invalid request with no receive to blame.
    QpReqErr = 2,
    /// Access violation with no receive to blame.
    QpAccessErr = 3,
    /// First packet in RTR.
    CommEst = 4,
    /// Send queue drained after RTS → SQD.
    SqDrained = 5,
    /// Device lost.
    DeviceFatal = 8,
    /// Link up.
    PortActive = 9,
    /// Link down.
    PortErr = 10,
    /// P_Key table changed.
    PkeyChange = 12,
    /// SRQ failed.
    SrqErr = 14,
    /// SRQ fell below its limit.
    SrqLimitReached = 15,
    /// No receive of the SRQ is in use by this QP any more.
    QpLastWqeReached = 16,
    /// GID table changed.
    GidChange = 18,
}

/// Why a queue pair went to ERR or dropped a message: one sentence for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A send request failed with this status; its opcode and `wr_id`.
    SendFailed {
        /// Status of its completion.
        status: WcStatus,
        /// The request.
        wr_id: u64,
        /// PSN that failed.
        psn: Psn,
    },
    /// We refused a request of the peer.
    RequestRefused {
        /// NAK syndrome sent.
        syndrome: u8,
        /// PSN refused.
        psn: Psn,
        /// What was wrong with it.
        reason: &'static str,
    },
    /// A received message was dropped (UC, UD).
    MessageDropped {
        /// PSN of the packet.
        psn: Psn,
        /// What was wrong.
        reason: &'static str,
    },
    /// The application asked for ERR.
    Modified,
    /// The completion queue overran.
    CqOverrun,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cause::SendFailed { status, wr_id, psn } => {
                write!(f, "send request {wr_id:#x} failed with {} at PSN {:#08x}", status.name(), psn.value())
            }
            Cause::RequestRefused { syndrome, psn, reason } => {
                write!(
                    f,
                    "refused the peer's request at PSN {:#08x} with NAK {syndrome:#04x}: {reason}",
                    psn.value()
                )
            }
            Cause::MessageDropped { psn, reason } => {
                write!(f, "dropped the message at PSN {:#08x}: {reason}", psn.value())
            }
            Cause::Modified => write!(f, "moved to ERR by modify_qp"),
            Cause::CqOverrun => write!(f, "a completion queue overran"),
        }
    }
}

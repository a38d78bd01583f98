//! Asynchronous events, and why they were raised.

use core::fmt;

use super::WcStatus;
use crate::wire::{Psn, Qpn};

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
        /// `retry_cnt` of the queue pair.
        retry_count: u8,
        /// `rnr_retry` of the queue pair.
        rnr_retry: u8,
        /// Its ACK timeout code.
        timeout: u8,
    },
    /// We refused a request of the peer.
    RequestRefused {
        /// NAK syndrome sent.
        syndrome: u8,
        /// PSN refused.
        psn: Psn,
        /// What was wrong with it.
        reason: &'static str,
        /// The memory that it named, if it named any.
        range: Option<RemoteRange>,
    },
    /// A received message was dropped (UC, UD).
    MessageDropped {
        /// PSN of the packet.
        psn: Psn,
        /// What was wrong.
        reason: &'static str,
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
    /// The application asked for ERR.
    Modified,
    /// The completion queue overran.
    CqOverrun {
        /// Completions it has room for.
        depth: u32,
    },
}

/// Memory that a peer's request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// R_Key.
    pub rkey: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length_bytes: u64,
}

impl Cause {
    /// Whether the queue pair is in ERR (or SQE) after it; otherwise a message was dropped.
    pub const fn is_fatal(&self) -> bool {
        !matches!(self, Cause::MessageDropped { .. } | Cause::WrongQkey { .. })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cause::SendFailed { status, wr_id, psn, retry_count, rnr_retry, timeout } => {
                let (status_name, psn) = (status.name(), psn.value());
                write!(f, "send request {wr_id:#x} failed with {status_name} at PSN {psn:#08x}: ")?;
                match status {
                    WcStatus::RetryExcErr => {
                        let sent = u32::from(retry_count) + 1;
                        let ms = (4096_u64 << timeout.min(31)).div_ceil(1_000_000);
                        write!(
                            f,
                            "the peer answered none of {sent} transmissions (retry_cnt {retry_count}, timeout \
                             {timeout}: {ms} ms each); is its queue pair there, in RTR, and its address right?"
                        )
                    }
                    WcStatus::RnrRetryExcErr => write!(
                        f,
                        "the peer had no receive request posted, {} times in a row (rnr_retry {rnr_retry})",
                        u32::from(rnr_retry) + 1
                    ),
                    _ => f.write_str(failure_reason(status)),
                }
            }
            Cause::RequestRefused { syndrome, psn, reason, range } => {
                let psn = psn.value();
                write!(f, "refused the peer's request at PSN {psn:#08x} with NAK {syndrome:#04x}: {reason}")?;
                match range {
                    None => Ok(()),
                    Some(RemoteRange { rkey, address, length_bytes }) => {
                        write!(f, " (R_Key {rkey:#010x}, {length_bytes} bytes at {address:#x})")
                    }
                }
            }
            Cause::WrongQkey { source, given, expected } => write!(
                f,
                "dropped a datagram of QP {source}: its Q_Key is {given:#010x}, this queue pair's {expected:#010x}"
            ),
            Cause::MessageDropped { psn, reason } => {
                write!(f, "dropped the message at PSN {:#08x}: {reason}", psn.value())
            }
            Cause::Modified => write!(f, "moved to ERR by modify_qp"),
            Cause::CqOverrun { depth } => write!(
                f,
                "failed: a completion queue of {depth} entries overran; poll it more often or make it larger"
            ),
        }
    }
}

/// Why a send request ends with a status.
const fn failure_reason(status: WcStatus) -> &'static str {
    match status {
        WcStatus::LocLenErr => "its message is longer than the port allows",
        WcStatus::LocProtErr => {
            "an element's lkey is unknown or of another domain, or its range or access right is wrong"
        }
        WcStatus::LocQpOpErr => "the operation does not fit the queue pair or the key",
        WcStatus::MwBindErr => "the memory window cannot be bound like this",
        WcStatus::BadRespErr => "the peer's answer does not fit the request",
        WcStatus::RemInvReqErr => {
            "the peer finds it invalid: its queue pair may not allow the operation, or its receive be too short"
        }
        WcStatus::RemAccessErr => "the peer refuses the R_Key, the range or the access right",
        WcStatus::RemOpErr => "the peer could not carry it out; its own completions say why",
        WcStatus::RemInvRdReqErr => "the peer refuses the XRC SRQ number",
        _ => "the queue pair failed",
    }
}

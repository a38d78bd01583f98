//! Work completions, and reasons why a request is not posted.

use alloc::boxed::Box;
use core::fmt;

use super::{QpState, QpType, SendOpcode, WcOpcode};

/// Outcome of a work request (`IBV_WC_*` status).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum WcStatus {
    /// The request was executed.
    #[default]
    Success = 0,
    /// A message did not fit its buffer or the port.
    LocLenErr = 1,
    /// The queue pair could not execute the request.
    LocQpOpErr = 2,
    /// The EE context of a reliable datagram could not execute the request; RoCE adapters have no such
    /// contexts.
    LocEecOpErr = 3,
    /// A local buffer's key, range, right or PD is wrong.
    LocProtErr = 4,
    /// The request was not executed, because the queue pair went to ERR before.
    WrFlushErr = 5,
    /// A memory window could not be bound.
    MwBindErr = 6,
    /// The peer's response was malformed.
    BadRespErr = 7,
    /// A local buffer could not be accessed while storing a response.
    LocAccessErr = 8,
    /// The peer found the request invalid (NAK 0x61).
    RemInvReqErr = 9,
    /// The peer refused access to its memory (NAK 0x62).
    RemAccessErr = 10,
    /// The peer failed to execute the request (NAK 0x63).
    RemOpErr = 11,
    /// The peer did not answer after all retries.
    RetryExcErr = 12,
    /// The peer had no receive posted after all RNR retries.
    RnrRetryExcErr = 13,
    /// The domain of a reliable datagram's request or of its buffer is wrong.
    LocRddViolErr = 14,
    /// The peer refused the request with NAK 0x64; XRC: it has no such SRQ.
    RemInvRdReqErr = 15,
    /// The peer aborted the request of a reliable datagram.
    RemAbortErr = 16,
    /// The number of a reliable datagram's EE context is wrong.
    InvEecnErr = 17,
    /// The state of a reliable datagram's EE context is wrong.
    InvEecStateErr = 18,
    /// The device failed.
    FatalErr = 19,
    /// The peer did not answer in time.
    RespTimeoutErr = 20,
    /// Another error happened.
    GeneralErr = 21,
    /// Tags could not be matched.
    TmErr = 22,
    /// A tagged message has a rendezvous that software has to finish.
    TmRndvIncomplete = 23,
}

impl WcStatus {
    /// All statuses.
    pub const ALL: [WcStatus; 24] = [
        WcStatus::Success,
        WcStatus::LocLenErr,
        WcStatus::LocQpOpErr,
        WcStatus::LocEecOpErr,
        WcStatus::LocProtErr,
        WcStatus::WrFlushErr,
        WcStatus::MwBindErr,
        WcStatus::BadRespErr,
        WcStatus::LocAccessErr,
        WcStatus::RemInvReqErr,
        WcStatus::RemAccessErr,
        WcStatus::RemOpErr,
        WcStatus::RetryExcErr,
        WcStatus::RnrRetryExcErr,
        WcStatus::LocRddViolErr,
        WcStatus::RemInvRdReqErr,
        WcStatus::RemAbortErr,
        WcStatus::InvEecnErr,
        WcStatus::InvEecStateErr,
        WcStatus::FatalErr,
        WcStatus::RespTimeoutErr,
        WcStatus::GeneralErr,
        WcStatus::TmErr,
        WcStatus::TmRndvIncomplete,
    ];

    /// Returns the name as in verbs, without the prefix.
    pub const fn name(self) -> &'static str {
        match self {
            WcStatus::Success => "SUCCESS",
            WcStatus::LocLenErr => "LOC_LEN_ERR",
            WcStatus::LocQpOpErr => "LOC_QP_OP_ERR",
            WcStatus::LocEecOpErr => "LOC_EEC_OP_ERR",
            WcStatus::LocProtErr => "LOC_PROT_ERR",
            WcStatus::WrFlushErr => "WR_FLUSH_ERR",
            WcStatus::MwBindErr => "MW_BIND_ERR",
            WcStatus::BadRespErr => "BAD_RESP_ERR",
            WcStatus::LocAccessErr => "LOC_ACCESS_ERR",
            WcStatus::RemInvReqErr => "REM_INV_REQ_ERR",
            WcStatus::RemAccessErr => "REM_ACCESS_ERR",
            WcStatus::RemOpErr => "REM_OP_ERR",
            WcStatus::RetryExcErr => "RETRY_EXC_ERR",
            WcStatus::RnrRetryExcErr => "RNR_RETRY_EXC_ERR",
            WcStatus::LocRddViolErr => "LOC_RDD_VIOL_ERR",
            WcStatus::RemInvRdReqErr => "REM_INV_RD_REQ_ERR",
            WcStatus::RemAbortErr => "REM_ABORT_ERR",
            WcStatus::InvEecnErr => "INV_EECN_ERR",
            WcStatus::InvEecStateErr => "INV_EEC_STATE_ERR",
            WcStatus::FatalErr => "FATAL_ERR",
            WcStatus::RespTimeoutErr => "RESP_TIMEOUT_ERR",
            WcStatus::GeneralErr => "GENERAL_ERR",
            WcStatus::TmErr => "TM_ERR",
            WcStatus::TmRndvIncomplete => "TM_RNDV_INCOMPLETE",
        }
    }
}

bitflags::bitflags! {
    /// Flags of a work completion (`IBV_WC_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct WcFlags: u32 {
        /// The buffer starts with the 40-byte GRH area.
        const GRH = 1;
        /// `imm_data` is valid.
        const WITH_IMM = 2;
        /// `invalidated_rkey` is valid.
        const WITH_INV = 8;
        /// A list of tags takes no new buffer into account before the program has reported how many
        /// unexpected messages it has handled.
        const TAG_SYNC_WANTED = 16;
        /// The message has a buffer with its tag.
        const TAG_MATCH = 32;
        /// All of the message is in its buffer.
        const TAG_DATA_VALID = 64;
    }
}

/// A work completion (`struct ibv_wc`). On an unsuccessful status only `wr_id`, `status`, `qp_num`
/// and `vendor_err` carry meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkCompletion {
    /// Identifier that the program gave the request.
    pub wr_id: u64,
    /// Outcome of the request.
    pub status: WcStatus,
    /// Operation that completed.
    pub opcode: WcOpcode,
    /// Further error code of a failure, which an adapter's library gives beside the status. The protocol sets
    /// 0, except for SRD.
    pub vendor_err: u32,
    /// Bytes of the message; UD receives count the 40-byte GRH area.
    pub byte_len: u32,
    /// Immediate data in network byte order.
    pub imm_data: [u8; 4],
    /// Key of this process that a SEND with invalidate invalidated.
    pub invalidated_rkey: u32,
    /// Number of the local queue pair (for an XRC SRQ: of the target).
    pub qp_num: u32,
    /// Number of the remote queue pair.
    pub src_qp: u32,
    /// Flags that say which fields are valid.
    pub flags: WcFlags,
    /// P_Key index of a datagram.
    pub pkey_index: u16,
    /// Source LID: 0 on RoCE.
    pub slid: u16,
    /// Service level of a received datagram: 10 if it came over IPv4, 9 if over IPv6, as adapters set it.
    /// Otherwise 0.
    pub sl: u8,
    /// Path bits of the destination LID: 0 on RoCE.
    pub dlid_path_bits: u8,
}

impl WorkCompletion {
    /// Sets the tag of a message, and the number that its sender gave beside it. They take the places of
    /// fields that no completion with a tag has.
    #[cold]
    pub const fn set_tag(&mut self, tag: u64, context: u32) {
        self.src_qp = (tag >> 32) as u32;
        (self.pkey_index, self.slid) = ((tag >> 16) as u16, tag as u16);
        if !self.flags.contains(WcFlags::WITH_INV) {
            self.invalidated_rkey = context;
        }
    }

    /// Returns the tag of a message and its sender's number; 0 and 0 if the message has none.
    pub const fn tag(&self) -> (u64, u32) {
        if !matches!(self.opcode, WcOpcode::TagRecv) {
            return (0, 0);
        }
        let tag = (self.src_qp as u64) << 32 | (self.pkey_index as u64) << 16 | self.slid as u64;
        (tag, if self.flags.contains(WcFlags::WITH_INV) { 0 } else { self.invalidated_rkey })
    }

    /// Returns the completion if it is successful.
    ///
    /// # Errors
    /// The completion, if its status is any other than `SUCCESS`.
    pub fn into_result(self) -> Result<WorkCompletion, CompletionError> {
        match self.status {
            WcStatus::Success => Ok(self),
            _ => Err(CompletionError(Box::new(self))),
        }
    }
}

/// An unsuccessful work completion as an error ([`WorkCompletion::into_result`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionError(pub Box<WorkCompletion>);

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkCompletion { wr_id, qp_num, status, .. } = *self.0;
        write!(f, "work request {wr_id:#x} of QP {qp_num:#08x} completed with {}", status.name())
    }
}

impl core::error::Error for CompletionError {}

/// Longest message in bytes.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 31;

/// Reason why a request was not posted. A refused request has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// The queue pair cannot take requests in this state.
    WrongState {
        /// State of the queue pair.
        state: QpState,
    },
    /// A receive request was posted in RESET.
    ReceiveInReset,
    /// The operation does not exist on this type of queue pair.
    WrongOpcode {
        /// Operation of the request.
        opcode: SendOpcode,
        /// Type of the queue pair.
        qp_type: QpType,
    },
    /// The request has `INLINE` and an operation that sends no data of its own.
    InlineNotAllowed {
        /// Operation of the request.
        opcode: SendOpcode,
    },
    /// The request has more scatter/gather elements than the queue was made for.
    TooManySges {
        /// Number of elements given.
        given: usize,
        /// Number of elements allowed.
        allowed: u32,
    },
    /// The request has more inline data than the queue was made for.
    InlineTooLong {
        /// Bytes given.
        given: u64,
        /// Bytes allowed.
        allowed: u32,
    },
    /// The message is longer than 2^31 bytes.
    MessageTooLong {
        /// Bytes given.
        given: u64,
    },
    /// An atomic or ATOMIC WRITE has other than 8 local bytes.
    NotEightBytes {
        /// Bytes given.
        given: u64,
    },
    /// An atomic is on an address that is not a multiple of 8.
    Misaligned {
        /// Remote address of the request.
        address: u64,
    },
    /// A datagram uses an address handle of another protection domain than the queue pair's.
    ForeignAddressHandle,
    /// A datagram has no address handle, an atomic has no operands, or a FLUSH has no range.
    Incomplete {
        /// Name of the missing field.
        missing: &'static str,
    },
    /// The request's flags are not allowed on SRD: SIGNALED is missing, or there are others.
    FlagsOfSrd,
    /// An RDMA of SRD has more than one buffer.
    BuffersOfSrd,
    /// All entries hold requests that were not completed and polled yet.
    QueueFull {
        /// Depth of the queue.
        depth: u32,
        /// True if all of them are unsignaled send requests: no completion can free one.
        all_unsignaled: bool,
    },
    /// There is no memory for the request: for a list of several buffers, long inline data, or an entry of a
    /// service whose queue grows.
    NoMemory,
}

impl PostError {
    /// Reports whether the error is a full queue.
    pub const fn is_queue_full(&self) -> bool {
        matches!(self, PostError::QueueFull { .. })
    }

    /// Returns the status with which adapters and rdma_rxe complete a request that has this fault; `None` if
    /// they, too, refuse the post.
    pub(crate) const fn completion(&self) -> Option<WcStatus> {
        match self {
            // A queue pair without a send queue has nothing to complete.
            PostError::WrongOpcode { qp_type, .. } if !qp_type.has_send_queue() => None,
            PostError::WrongOpcode { .. } | PostError::ForeignAddressHandle => Some(WcStatus::LocQpOpErr),
            PostError::NotEightBytes { .. } => Some(WcStatus::LocLenErr),
            _ => None,
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PostError::WrongState { state } => {
                let name = state.name();
                write!(
                    f,
                    "a queue pair in state {name} takes no requests; send requests are taken from RTS on"
                )
            }
            PostError::ReceiveInReset => {
                write!(
                    f,
                    "a queue pair in state RESET takes no requests; receive requests are taken from INIT on"
                )
            }
            PostError::WrongOpcode { opcode, qp_type } => {
                write!(f, "operation {} does not exist on {}", opcode.name(), qp_type.name())
            }
            PostError::InlineNotAllowed { opcode } => {
                write!(f, "flag INLINE makes no sense for {}", opcode.name())
            }
            PostError::TooManySges { given, allowed } => {
                write!(f, "{given} scatter/gather elements, but the queue was made for {allowed}")
            }
            PostError::InlineTooLong { given, allowed } => {
                write!(f, "{given} bytes of inline data, but the queue was made for {allowed}")
            }
            PostError::MessageTooLong { given } => {
                write!(f, "a message of {given} bytes is longer than 2^31")
            }
            PostError::NotEightBytes { given } => {
                write!(f, "an atomic needs exactly 8 local bytes, not {given}")
            }
            PostError::Misaligned { address } => {
                write!(f, "the remote address {address:#x} of an atomic is not a multiple of 8")
            }
            PostError::ForeignAddressHandle => {
                write!(f, "the address handle is of another protection domain than the queue pair")
            }
            PostError::Incomplete { missing } => write!(f, "{missing} is missing"),
            PostError::FlagsOfSrd => {
                write!(f, "a request of SRD has the flag SIGNALED, and beside it INLINE at most")
            }
            PostError::BuffersOfSrd => {
                write!(f, "RDMA on SRD has one buffer: put the data into one, or post several requests")
            }
            PostError::QueueFull { depth, all_unsignaled: false } => {
                write!(f, "all {depth} entries of the queue are in use; poll completions to free them")
            }
            PostError::QueueFull { depth, all_unsignaled: true } => write!(
                f,
                "all {depth} entries of the queue hold requests without IBV_SEND_SIGNALED: no completion \
                 will come to free one; signal one request of {depth} at least"
            ),
            PostError::NoMemory => {
                write!(
                    f,
                    "there is no memory for the request; raise the limit of the process: ulimit -v unlimited"
                )
            }
        }
    }
}

impl core::error::Error for PostError {}

//! Reasons why a request is not posted.

use core::fmt;

use super::{QpState, QpType, SendOpcode, WcStatus};

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

//! Facts about a failed request, and reasons why memory cannot be accessed.

use core::fmt;
use core::net::IpAddr;

use super::{PostError, SendOpcode, Sge, WcStatus};
use crate::wire::{Psn, Qpn};

/// Reason why memory could not be accessed. The protocol turns it into a NAK or a completion status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryError {
    /// The key does not exist, or is not valid now.
    UnknownKey,
    /// The key belongs to another protection domain (or another QP, for a type-2 window).
    WrongDomain,
    /// The range is not inside the region, or wraps.
    OutOfRange,
    /// The region lacks the right.
    AccessDenied,
    /// An atomic's address is not a multiple of 8.
    Misaligned,
    /// The region is paged on demand, and there is no page, or no page with that right.
    NotMapped,
}

impl MemoryError {
    /// Describes the fault, for messages.
    pub const fn reason(self) -> &'static str {
        match self {
            MemoryError::UnknownKey => "the key is unknown or no longer valid",
            MemoryError::WrongDomain => "the key belongs to another protection domain or queue pair",
            MemoryError::OutOfRange => "the range is not inside the memory region",
            MemoryError::AccessDenied => "the memory region lacks the access right",
            MemoryError::Misaligned => "the address is not a multiple of 8",
            MemoryError::NotMapped => "the process has no memory there, or not with that right",
        }
    }
}

/// A send request that failed, and what was received from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedSend {
    /// Status of its completion.
    pub status: WcStatus,
    /// Identifier that the program gave the request.
    pub wr_id: u64,
    /// Operation of the request.
    pub opcode: SendOpcode,
    /// Length of the request in bytes.
    pub length_bytes: u32,
    /// PSN that failed.
    pub psn: Psn,
    /// Path MTU of the queue pair; 0 if its messages are Ethernet frames.
    pub mtu_bytes: u32,
    /// `retry_cnt` of the queue pair.
    pub retry_count: u8,
    /// `rnr_retry` of the queue pair.
    pub rnr_retry: u8,
    /// ACK timeout code of the queue pair.
    pub timeout: u8,
    /// Number of retries of MRC at doubled timeouts, after `retry_count` at the same one; `timeout` is MRC's
    /// then. `None` for other services.
    pub exponential_retries: Option<u8>,
    /// First wait for an answer in ns, if it doubles instead of following the code.
    pub adaptive_ns: Option<u64>,
    /// Peer of the queue pair, if it has one.
    pub peer: Option<Peer>,
    /// Remote memory that the request names.
    pub remote: Option<RemoteRange>,
    /// Fault of local memory or of a local key.
    pub fault: Option<MemoryFault>,
    /// Reason why the request does not fit its queue pair or its address handle, if it was posted
    /// nevertheless.
    pub misfit: Option<PostError>,
    /// Answers that came from the peer since the last progress.
    pub ignored_answers: IgnoredAnswers,
    /// True if the peer acknowledged a request before, on this connection.
    pub was_acknowledged: bool,
    /// True if no process of this host has the peer's number.
    pub peer_is_absent: bool,
    /// True if the queue pair is its own peer.
    pub peer_is_itself: bool,
}

/// Destination of a connected queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Address of the peer.
    pub address: IpAddr,
    /// Queue pair number of the peer.
    pub qpn: Qpn,
}

/// Memory of the peer that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// R_Key.
    pub rkey: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// Reason why local memory could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFault {
    /// Kind of fault.
    pub error: MemoryError,
    /// Scatter/gather element that has the fault, if it is known.
    pub element: Option<Sge>,
    /// First byte and length of the region that the element's key names, if there is one.
    pub region: Option<(u64, u64)>,
    /// True if the device was to store into the memory, which needs `LOCAL_WRITE`.
    pub stores: bool,
}

impl MemoryFault {
    /// Creates a fault of which only the error is known.
    pub const fn of_error(error: MemoryError, stores: bool) -> MemoryFault {
        MemoryFault { error, element: None, region: None, stores }
    }
}

/// Answers of the peer that brought no progress, since the last progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IgnoredAnswers {
    /// Number of answers that came.
    pub answers: u32,
    /// Last answer that came.
    pub last: Option<IgnoredAnswer>,
    /// Number of RNR NAKs: the peer had no receive request for the message.
    pub rnr_naks: u32,
}

impl IgnoredAnswers {
    /// Counts one more answer.
    pub const fn note(&mut self, answer: IgnoredAnswer) {
        self.answers = self.answers.saturating_add(1);
        self.last = Some(answer);
    }
}

/// An answer that acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredAnswer {
    /// The answer is for a PSN that was never sent.
    NeverSent(Psn),
    /// The answer is for a PSN that had been acknowledged before.
    Old(Psn),
    /// A sequence NAK asks to send again from this PSN on.
    Repeat(Psn),
    /// The answer is for a later PSN than the one that is missing.
    Later(Psn),
}

/// The numbers that belong to a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureDetail {
    /// No numbers.
    #[default]
    None,
    /// The memory that the peer's request names.
    Remote(RemoteRange),
    /// The receive request, and the fault of its memory.
    Receive {
        /// Identifier that the program gave the request.
        wr_id: u64,
        /// Fault of the memory.
        fault: MemoryFault,
    },
    /// The receive request has too little room.
    Room {
        /// Identifier that the program gave the request.
        wr_id: u64,
        /// Total length of its buffers in bytes.
        room_bytes: u64,
        /// Number of bytes of the message that have arrived.
        arrived_bytes: u64,
        /// True if more of the message is to come.
        more: bool,
        /// Bytes of the GRH that are stored in front of the message.
        grh_bytes: u64,
    },
    /// The payload of a packet does not fit.
    Payload {
        /// Length of the packet's payload in bytes.
        bytes: u32,
        /// Path MTU of this queue pair.
        mtu_bytes: u32,
        /// True if the length is the sender's path MTU, as in all packets of a message but the last.
        is_senders_mtu: bool,
    },
    /// The access flags of the queue pair.
    Access {
        /// Name of the missing flag of `qp_access_flags`.
        missing: &'static str,
    },
}

impl fmt::Display for FailedSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedSend { status, wr_id, opcode, length_bytes, psn, .. } = self;
        write!(
            f,
            "send request {wr_id:#x} ({}, {length_bytes} bytes) failed with {} at PSN {:#08x}: ",
            opcode.name(),
            status.name(),
            psn.value()
        )?;
        self.write_reason(f)?;
        if self.peer_is_itself { f.write_str(OWN_NUMBER) } else { Ok(()) }
    }
}

/// End of the message about a queue pair that is connected to itself.
const OWN_NUMBER: &str =
    "; its dest_qp_num is its own number, so that it sends to itself: give it the number of the peer";

impl FailedSend {
    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedSend { status, opcode, .. } = self;
        match status {
            WcStatus::RetryExcErr => self.write_unanswered(f),
            WcStatus::RnrRetryExcErr => write!(
                f,
                "the peer had no receive request posted, {} times in a row (rnr_retry {})",
                u32::from(self.rnr_retry) + 1,
                self.rnr_retry
            ),
            WcStatus::LocProtErr | WcStatus::LocAccessErr => match &self.fault {
                Some(fault) => fmt::Display::fmt(fault, f),
                None => f.write_str("its local memory cannot be used"),
            },
            WcStatus::MwBindErr | WcStatus::LocQpOpErr => match &self.fault {
                Some(fault) => f.write_str(fault.error.reason()),
                None => match &self.misfit {
                    Some(misfit) => fmt::Display::fmt(misfit, f),
                    None => f.write_str("the operation does not fit the queue pair or the key"),
                },
            },
            WcStatus::LocLenErr if opcode.info().data.is_word() => {
                f.write_str("an atomic has 8 local bytes, no more and no less")
            }
            WcStatus::LocLenErr if self.mtu_bytes == 0 => {
                f.write_str("a frame has 14 bytes or more, and no more than the network interface carries")
            }
            WcStatus::LocLenErr => {
                write!(
                    f,
                    "its message is longer than the path MTU of {} bytes, or than the port allows",
                    self.mtu_bytes
                )
            }
            _ => self.write_refused(f),
        }
    }

    /// Writes the number of transmissions, and the wait for an answer after each.
    fn write_transmissions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (retry_count, timeout) = (self.retry_count, self.timeout);
        let sent = u32::from(retry_count) + 1;
        if let Some(doubled) = self.exponential_retries {
            let us = (1024_u64 << timeout.min(31)).div_ceil(1000);
            return write!(
                f,
                "{retry_count} linear and {doubled} exponential retries (MRC's timeout {timeout}: {us} us, \
                 doubled by each exponential one)"
            );
        }
        if let Some(first_ns) = self.adaptive_ns {
            let first_ms = first_ns.div_ceil(1_000_000);
            return write!(
                f,
                "{sent} transmissions (retry_cnt {retry_count}, adaptive retransmission of this device: \
                 {first_ms} ms, then twice as long each time, without regard to the timeout of {timeout})"
            );
        }
        let ms = (4096_u64 << timeout.min(31)).div_ceil(1_000_000);
        write!(f, "{sent} transmissions (retry_cnt {retry_count}, timeout {timeout}: {ms} ms each)")
    }

    /// Describes RETRY_EXC_ERR: the number of transmissions, and the answers that came.
    fn write_unanswered(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |f: &mut fmt::Formatter<'_>| self.write_transmissions(f);
        let answers = self.ignored_answers.answers;
        let Some(last) = self.ignored_answers.last else {
            if self.ignored_answers.rnr_naks > 0 {
                let naks = self.ignored_answers.rnr_naks;
                let plural = if naks == 1 { "" } else { "s" };
                write!(
                    f,
                    "the peer had answered with {naks} RNR NAK{plural}, as it had no receive request for the \
                     message, and then to none of "
                )?;
                times(f)?;
                return f.write_str(": was its queue pair destroyed, or has its process ended?");
            }
            match self.peer {
                Some(Peer { address, qpn }) => write!(f, "nothing came from QP {qpn} at {address} after ")?,
                None => f.write_str("nothing came from the peer after ")?,
            }
            times(f)?;
            return f.write_str(match (self.was_acknowledged, self.peer_is_absent) {
                (true, true) => "; it had acknowledged messages before, and its process has ended",
                (true, false) => {
                    "; it had acknowledged messages before: was it destroyed, has its process ended, or is \
                     the way to it cut?"
                }
                (false, true) => {
                    "; no process of this host has such a number: its process has ended, or the dest_qp_num \
                     is wrong"
                }
                (false, false) => "; is the queue pair there, in RTR, and are its number and address right?",
            });
        };
        f.write_str("after ")?;
        times(f)?;
        write!(f, " the peer's {answers} answers acknowledged nothing; the last one ")?;
        match last {
            IgnoredAnswer::NeverSent(psn) => write!(
                f,
                "is for PSN {:#08x}, which this side has never sent: sq_psn here is not rq_psn of the peer",
                psn.value()
            ),
            IgnoredAnswer::Old(psn) => {
                write!(
                    f,
                    "is for PSN {:#08x}, which was acknowledged before: new packets do not reach it",
                    psn.value()
                )
            }
            IgnoredAnswer::Repeat(psn) => write!(
                f,
                "asks for PSN {:#08x} again: packets from here to the peer are lost, others arrive",
                psn.value()
            ),
            IgnoredAnswer::Later(psn) => write!(
                f,
                "is for PSN {:#08x}, and the one for this request never came: packets from the peer are lost",
                psn.value()
            ),
        }
    }

    /// Describes what the peer refused, as far as this side can know the reason.
    fn write_refused(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.status {
            WcStatus::BadRespErr => {
                "the peer's answer does not fit the request; do both ends have the same path_mtu?"
            }
            WcStatus::RemInvReqErr => {
                "the peer finds it invalid: its receive request may be too short, its qp_access_flags or \
                 max_dest_rd_atomic not allow it, or its path_mtu be another"
            }
            WcStatus::RemAccessErr => {
                "the peer refuses it: its R_Key is unknown there or of another protection domain, the range \
                is not \
                 inside the region, or the region lacks the right"
            }
            WcStatus::RemOpErr => {
                "the peer accepted it and could not carry it out: the completion of its receive request \
                says why"
            }
            WcStatus::RemInvRdReqErr => "the peer has no XRC SRQ of this number in the target's domain",
            _ => "the queue pair failed",
        })?;
        match self.remote {
            Some(remote) => write!(f, "{}", FailureDetail::Remote(remote)),
            None if self.status == WcStatus::RemInvReqErr || self.status == WcStatus::BadRespErr => {
                write!(f, " (path MTU here {})", self.mtu_bytes)
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Sge { address, length, lkey }) = self.element else {
            return f.write_str(self.error.reason());
        };
        match self.error {
            MemoryError::UnknownKey => {
                write!(f, "no memory region has lkey {lkey:#010x}: it is wrong, or was deregistered")?;
            }
            MemoryError::WrongDomain => {
                write!(f, "the memory region of lkey {lkey:#010x} belongs to another protection domain")?;
            }
            MemoryError::OutOfRange => {
                write!(f, "the range is not inside the memory region of lkey {lkey:#010x}")?;
                if let Some((first, bytes)) = self.region {
                    write!(f, ", which is {bytes} bytes at {first:#x}")?;
                }
            }
            MemoryError::AccessDenied if self.stores => write!(
                f,
                "the memory region of lkey {lkey:#010x} lacks IBV_ACCESS_LOCAL_WRITE, and the device has to \
                store there"
            )?,
            error => write!(f, "{}, lkey {lkey:#010x}", error.reason())?,
        }
        write!(f, " (element of {length} bytes at {address:#x})")
    }
}

impl fmt::Display for FailureDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FailureDetail::None => Ok(()),
            FailureDetail::Remote(RemoteRange { rkey, address, length_bytes }) => {
                write!(f, " (R_Key {rkey:#010x}, {length_bytes} bytes at {address:#x})")
            }
            FailureDetail::Receive { wr_id, fault } => write!(f, "; receive request {wr_id:#x}: {fault}"),
            FailureDetail::Room { wr_id, room_bytes, arrived_bytes, more, grh_bytes } => {
                let least = if more { "at least " } else { "" };
                write!(f, "; receive request {wr_id:#x} has room for {room_bytes} bytes, ")?;
                if grh_bytes == 0 {
                    return write!(f, "the message has {least}{arrived_bytes}");
                }
                let needed = grh_bytes + arrived_bytes;
                write!(
                    f,
                    "a datagram of {arrived_bytes} needs {needed}: {grh_bytes} for the GRH come in front"
                )
            }
            FailureDetail::Payload { bytes, mtu_bytes, is_senders_mtu: true } => write!(
                f,
                "; its {bytes} bytes show the sender's path_mtu, and this queue pair's is {mtu_bytes}"
            ),
            FailureDetail::Payload { bytes, mtu_bytes, is_senders_mtu: false } => {
                write!(f, "; it has {bytes} bytes, and the path MTU of this queue pair is {mtu_bytes}")
            }
            FailureDetail::Access { missing } => write!(f, "; its qp_access_flags lack {missing}"),
        }
    }
}

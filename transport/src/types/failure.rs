//! What is known about a request that failed: the numbers behind its sentence.

use core::fmt;
use core::net::IpAddr;

use super::{MemoryError, SendOpcode, Sge, WcStatus};
use crate::wire::{Psn, Qpn};

/// A send request that failed, and what was seen of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedSend {
    /// Status of its completion.
    pub status: WcStatus,
    /// The request.
    pub wr_id: u64,
    /// Its operation.
    pub opcode: SendOpcode,
    /// Its length.
    pub length_bytes: u32,
    /// PSN that failed.
    pub psn: Psn,
    /// Path MTU of the queue pair; 0 if its messages are Ethernet frames.
    pub mtu_bytes: u32,
    /// `retry_cnt` of the queue pair.
    pub retry_count: u8,
    /// `rnr_retry` of the queue pair.
    pub rnr_retry: u8,
    /// Its ACK timeout code.
    pub timeout: u8,
    /// The peer, of a queue pair that has one.
    pub peer: Option<Peer>,
    /// The remote memory that the request names.
    pub remote: Option<RemoteRange>,
    /// What was wrong with local memory or a local key.
    pub fault: Option<MemoryFault>,
    /// What came from the peer since the last progress.
    pub heard: Heard,
    /// The peer acknowledged something before, on this connection.
    pub was_acknowledged: bool,
    /// No process of this host has the peer's number.
    pub peer_is_absent: bool,
    /// Its peer is the queue pair itself.
    pub peer_is_itself: bool,
}

/// Where a connected queue pair sends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair number.
    pub qpn: Qpn,
}

/// Memory that a request names at the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// R_Key.
    pub rkey: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length_bytes: u64,
}

/// Why local memory could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFault {
    /// What was wrong.
    pub error: MemoryError,
    /// The element that it was wrong with, if that is known.
    pub element: Option<Sge>,
    /// First byte and length of the region that its key names, if there is one.
    pub region: Option<(u64, u64)>,
    /// The device was to store into it, which needs `LOCAL_WRITE`.
    pub stores: bool,
}

impl MemoryFault {
    /// A fault of which nothing but the error is known.
    pub const fn of_error(error: MemoryError, stores: bool) -> MemoryFault {
        MemoryFault { error, element: None, region: None, stores }
    }
}

/// Answers of the peer that brought no progress, since there was progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heard {
    /// How many came.
    pub answers: u32,
    /// The last of them.
    pub last: Option<Answer>,
    /// How often the peer said that it has no receive request for the message.
    pub rnr_naks: u32,
}

impl Heard {
    /// One more came.
    pub const fn note(&mut self, answer: Answer) {
        self.answers = self.answers.saturating_add(1);
        self.last = Some(answer);
    }
}

/// An answer that acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// For a PSN that was never sent.
    NeverSent(Psn),
    /// For a PSN that had been acknowledged before.
    Old(Psn),
    /// A sequence NAK: send again from this PSN on.
    Repeat(Psn),
    /// For a later PSN than the one that is missing.
    Later(Psn),
}

/// The numbers behind a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// There are none.
    #[default]
    None,
    /// Memory that the peer's request names.
    Remote(RemoteRange),
    /// The receive request, and what is wrong with its memory.
    Receive {
        /// Of the request.
        wr_id: u64,
        /// What was wrong.
        fault: MemoryFault,
    },
    /// The receive request has too little room.
    Room {
        /// Of the request.
        wr_id: u64,
        /// Bytes that its elements have.
        room_bytes: u64,
        /// Bytes that have arrived of the message.
        arrived_bytes: u64,
        /// There is more of the message to come.
        more: bool,
        /// Bytes of the GRH that come in front.
        grh_bytes: u64,
    },
    /// The payload of a packet does not fit.
    Payload {
        /// Bytes of the packet's payload.
        bytes: u32,
        /// Path MTU of this queue pair.
        mtu_bytes: u32,
        /// All packets of a message but the last are as long as the sender's path MTU.
        is_senders_mtu: bool,
    },
    /// The queue pair's access flags.
    Access {
        /// Flag that is missing, as `qp_access_flags` has it.
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

/// What a sentence about a queue pair that is connected to itself goes on with.
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
                None => f.write_str("the operation does not fit the queue pair or the key"),
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

    /// RETRY_EXC_ERR: how often it was sent, and what was heard.
    fn write_unanswered(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent = u32::from(self.retry_count) + 1;
        let ms = (4096_u64 << self.timeout.min(31)).div_ceil(1_000_000);
        let times = |f: &mut fmt::Formatter<'_>| {
            let (retry_count, timeout) = (self.retry_count, self.timeout);
            write!(f, "{sent} transmissions (retry_cnt {retry_count}, timeout {timeout}: {ms} ms each)")
        };
        let answers = self.heard.answers;
        let Some(last) = self.heard.last else {
            if self.heard.rnr_naks > 0 {
                let naks = self.heard.rnr_naks;
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
            Answer::NeverSent(psn) => write!(
                f,
                "is for PSN {:#08x}, which this side has never sent: sq_psn here is not rq_psn of the peer",
                psn.value()
            ),
            Answer::Old(psn) => {
                write!(
                    f,
                    "is for PSN {:#08x}, which was acknowledged before: new packets do not reach it",
                    psn.value()
                )
            }
            Answer::Repeat(psn) => write!(
                f,
                "asks for PSN {:#08x} again: packets from here to the peer are lost, others arrive",
                psn.value()
            ),
            Answer::Later(psn) => write!(
                f,
                "is for PSN {:#08x}, and the one for this request never came: packets from the peer are lost",
                psn.value()
            ),
        }
    }

    /// What the peer refused, as far as this side can know why.
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
            Some(remote) => write!(f, "{}", Detail::Remote(remote)),
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

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Detail::None => Ok(()),
            Detail::Remote(RemoteRange { rkey, address, length_bytes }) => {
                write!(f, " (R_Key {rkey:#010x}, {length_bytes} bytes at {address:#x})")
            }
            Detail::Receive { wr_id, fault } => write!(f, "; receive request {wr_id:#x}: {fault}"),
            Detail::Room { wr_id, room_bytes, arrived_bytes, more, grh_bytes } => {
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
            Detail::Payload { bytes, mtu_bytes, is_senders_mtu: true } => write!(
                f,
                "; its {bytes} bytes show the sender's path_mtu, and this queue pair's is {mtu_bytes}"
            ),
            Detail::Payload { bytes, mtu_bytes, is_senders_mtu: false } => {
                write!(f, "; it has {bytes} bytes, and the path MTU of this queue pair is {mtu_bytes}")
            }
            Detail::Access { missing } => write!(f, "; its qp_access_flags lack {missing}"),
        }
    }
}

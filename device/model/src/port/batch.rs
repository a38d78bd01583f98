//! Batches: what a port sends and receives in one call, packets of one flow and of one size.

use std::fmt;
use std::io;
use std::sync::Arc;

use pumice_transport::path::{Flow, Path};
use pumice_transport::types::Fate;
use pumice_transport::wire::peek;

use super::limits::Peer;

/// Packets of one path and of one size that are sent together: a GSO batch (generic segmentation offload).
///
/// The batch is the unit because sending costs one traversal of the network stack per call, for a call
/// with one packet as for a call with many.
#[derive(Debug, Clone, Copy)]
pub struct GsoBatch<'a> {
    /// Path of all of the packets.
    pub path: &'a Path,
    /// Number of the series: batches of one port with the same number have one path, and go to one process; 0
    /// if none is known to. A port can use what it knows of the batch before.
    pub series: u64,
    /// Length of every packet (BTH to ICRC) but the last, which may be shorter, in bytes.
    pub segment_bytes: usize,
    /// Bytes of the packets, one after the other, not empty. The ICRC of the k-th (from 0) is made with IP ID
    /// k.
    pub bytes: &'a [u8],
    /// The packets have an ICRC, which the port needs
    /// ([`PortLimits::needs_icrc`](crate::port::limits::PortLimits)).
    pub has_icrc: bool,
    /// An adapter reads the payload of at least one of the packets from the program's memory, because its
    /// request does not carry it (inline data).
    pub is_fetched: bool,
    /// Fates of some of the packets under a fault plan, by their index in the batch, ascending; empty without
    /// one.
    pub fates: &'a [(u16, Fate)],
    /// Comments of captures about some of the packets, by their index in the batch, ascending.
    pub comments: &'a [(u16, Arc<str>)],
}

impl<'a> GsoBatch<'a> {
    /// Creates a batch without fates and comments.
    pub fn new(path: &'a Path, segment_bytes: usize, bytes: &'a [u8]) -> GsoBatch<'a> {
        GsoBatch {
            path,
            series: 0,
            segment_bytes,
            bytes,
            has_icrc: true,
            is_fetched: false,
            fates: &[],
            comments: &[],
        }
    }

    /// Returns the packets of the batch, in order. A `segment_bytes` of zero makes one packet of everything.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(if self.segment_bytes == 0 { self.bytes.len().max(1) } else { self.segment_bytes })
    }

    /// Returns the process that gets the batch: the one that the first packet names.
    pub fn peer(&self) -> Peer {
        let process = peek::process(self.bytes).unwrap_or_default();
        Peer { address: self.path.flow.destination, process }
    }
}

/// Packets of one flow that arrived together.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedBatch<'a> {
    /// Addresses and ports as they were on the wire: `source` is the sender.
    pub flow: Flow,
    /// TOS byte / IPv6 traffic class; the low two bits are ECN.
    pub traffic_class: u8,
    /// TTL / hop limit on arrival.
    pub hop_limit: u8,
    /// Length of every packet but the last, which may be shorter, in bytes; at least 1.
    pub segment_bytes: usize,
    /// Bytes of the packets, one after the other, not empty.
    pub bytes: &'a [u8],
    /// The packets have an ICRC. Packets that another process of this host put into memory have none, unless
    /// that process has to show it, and nothing on their way could damage them.
    pub has_icrc: bool,
}

impl<'a> ReceivedBatch<'a> {
    /// Returns the packets, in order.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        self.bytes.chunks(self.segment_bytes.max(1))
    }
}

/// Result of looking for a short batch.
#[derive(Debug)]
pub enum ShortReceive<'a> {
    /// A batch without ICRC, all of whose packets are for this process.
    Batch(ReceivedBatch<'a>),
    /// The port has nothing now.
    Nothing,
    /// The port has to be asked in the general way; nothing has been taken.
    NotHere,
}

/// The reason why a batch was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitError {
    /// The queue below is full and nothing was sent; try again later.
    Busy,
    /// The batch or one of its packets is longer than the port or the path to the destination carries.
    TooLong {
        /// Length of the packet (or of the batch, when `limit_bytes` is the batch's), in bytes.
        bytes: usize,
        /// Largest length that fits, when known, else 0.
        limit_bytes: usize,
    },
    /// There is no route to the destination.
    Unreachable,
    /// The operating system refused with this errno. `EADDRNOTAVAIL` is also the answer to a path whose
    /// source address or source port is not this port's.
    Refused(i32),
}

impl fmt::Display for TransmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Busy => f.write_str("the send queue is full"),
            Self::TooLong { bytes, limit_bytes: 0 } => {
                write!(f, "a packet of {bytes} bytes is longer than the MTU of the way to the destination")
            }
            Self::TooLong { bytes, limit_bytes } => {
                write!(f, "{bytes} bytes are more than the {limit_bytes} that fit")
            }
            Self::Unreachable => f.write_str("no route to the destination"),
            Self::Refused(errno) => {
                write!(f, "sending was refused: {}", io::Error::from_raw_os_error(errno))
            }
        }
    }
}

impl std::error::Error for TransmitError {}

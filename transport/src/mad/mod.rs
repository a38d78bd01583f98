//! Management datagrams (MADs): the 256 bytes that queue pair 1 carries.
//!
//! [`Mad`] is the checked view of one; [`CmMessage`] is the value of a communication management (CM) message:
//! `parse` and `emit` are inverses on messages whose reserved bits are zero. RDMA-CM uses [`ServiceId`] and
//! [`IpHeader`] to address by IP address and port. [`refuse`] answers the queries of management classes that
//! a RoCE port of this device does not serve.
//!
//! Layouts are those of the IBTA specification; bits that are reserved there and filled by Linux (connection
//! options of vendors, [`Ece`]) are fields here. The device adds the envelope (a UD SEND to queue pair 1 with
//! [`GSI_Q_KEY`]).
//!
//! Communication ids.
//!
//! Connection options of vendors.

use core::fmt;

use crate::wire::ProcessIndex;

/// A communication id: names a connection at one of its ends; 0 stands for no connection.
///
/// The top byte is the index of the process, so that a process that gets a message for a connection knows
/// which process has the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommId(pub u32);

impl CommId {
    /// The id that stands for no connection.
    pub const NONE: CommId = CommId(0);

    /// Returns the id with this number, of which the low 24 bits count, in this process.
    pub const fn of(process: ProcessIndex, number: u32) -> CommId {
        CommId((process.value() as u32) << 24 | number & 0xff_ffff)
    }

    /// Returns the process that chose this id.
    pub const fn process(self) -> ProcessIndex {
        ProcessIndex::new((self.0 >> 24) as u8)
    }
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Connection options of vendors ("enhanced connection establishment"); zeros stand for no options. They
/// travel in reserved bits of REQ and REP and in the attribute modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ece {
    /// Vendor that defines the options (24 bits).
    pub vendor_id: u32,
    /// Bits of the options.
    pub options: u32,
}

mod disconnect;
mod field;
mod header;
mod ip_header;
mod lap;
mod message;
mod private_data;

mod rej;
mod rep;
mod req;
mod sidr;

pub use disconnect::{Drep, Dreq};

pub use header::{MAD_BYTES, MAD_HEADER_BYTES, Mad, MadError, MadHeader, attribute, class, method};
pub use ip_header::{IP_HEADER_BYTES, IpHeader, IpHeaderError};
pub use lap::{ApStatus, Apr, Lap};
pub use message::CmMessage;
pub use private_data::{PrivateData, PrivateDataTooLong};
pub use rej::{Rej, RejectReason, Rejected, SidrStatus, refuse};
pub use rep::{Mra, MraOf, Rep, Rtu};
pub use req::{PathFields, Req, TransportType};
pub use sidr::{PortSpace, ServiceId, SidrRep, SidrReq};

/// The Q_Key of queue pair 1.
pub const GSI_Q_KEY: u32 = 0x8001_0000;

#[cfg(test)]
mod properties;

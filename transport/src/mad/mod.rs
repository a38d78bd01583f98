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

mod comm_id;
mod disconnect;
mod ece;
mod field;
mod header;
mod ip_header;
mod lap;
mod message;
mod private_data;
#[cfg(test)]
mod properties;
mod rej;
mod rep;
mod req;
mod sidr;

pub use comm_id::CommId;
pub use disconnect::{Drep, Dreq};
pub use ece::Ece;
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

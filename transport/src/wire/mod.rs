//! Wire formats of RoCEv2: every header as a checked view and a plain value.
//!
//! [`Packet`] is a checked view of one UDP payload (BTH … ICRC); [`Headers`] is the value of all its headers
//! and writes them again: `parse` and `emit` are inverses on legal packets. [`icrc`] seals and verifies,
//! [`encapsulation`] adds and removes the layers below UDP (for captures, the simulated fabric and the GRH
//! area of datagrams). A UDP socket needs none of the latter.
//!
//! Header layouts, the opcode table and the invariant CRC are those of the IBTA specification with
//! its RoCEv2 annex; FLUSH and ATOMIC WRITE as in its memory placement extensions.

mod bth;
pub mod encapsulation;
mod extended_headers;
mod frame;
mod header_set;
mod headers;
pub mod icrc;
mod opcode_table;
mod operation;
mod packet;
pub mod peek;
#[cfg(any(test, kani))]
pub(crate) mod proofs;
#[cfg(test)]
mod properties;
mod qpn;
mod service;
pub mod source_port;
mod syndrome;
#[cfg(test)]
mod vectors;

pub use bth::{Bth, GRH_BYTES, Opcode, grh};
pub use encapsulation::{Datagram, EncapsulationError, LinkType, decapsulate, encapsulate};
pub use extended_headers::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
pub use frame::{FRAME_HEADER_BYTES, FrameFields};
pub use header_set::HeaderSet;
pub(crate) use header_set::{CnpReserved, Extensions};
pub use headers::Headers;
pub use icrc::{ICRC_BYTES, IcrcVerdict};
pub use opcode_table::{OPCODES, OpcodeInfo, PayloadRule};
pub use operation::{Operation, OperationClass, Packets, Position};
pub use packet::{Packet, PacketError};
pub use qpn::{ProcessIndex, Psn, Qpn};
pub use service::{SERVICES, Service, ServiceRow};
pub use syndrome::{NakCode, Syndrome, credits, rnr_timer_ns, transport_timer_ns};

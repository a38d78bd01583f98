//! Wire formats of RoCEv2: every header as a checked view and a plain value.
//!
//! [`Packet`] is a checked view of one UDP payload (BTH … ICRC); [`Headers`] is the value of all its headers
//! and writes them again: `parse` and `emit` are inverses on legal packets. [`icrc`] seals and verifies,
//! [`encapsulation`] adds and removes the layers below UDP (for captures, the simulated fabric and the GRH
//! area of datagrams). A UDP socket needs none of the latter.
//!
//! Header layouts, the opcode table and the invariant CRC are those of the IBTA specification with
//! its RoCEv2 annex; FLUSH and ATOMIC WRITE as in its memory placement extensions.

mod aeth;
mod atomic;
mod bth;
mod deth;
pub mod encapsulation;
mod feth;
mod frame;
mod grh;
mod header_set;
mod headers;
pub mod icrc;
mod immediate;
mod opcode;
mod opcode_table;
mod operation;
mod packet;
pub mod peek;
#[cfg(any(test, kani))]
pub(crate) mod proofs;
#[cfg(test)]
mod properties;
mod psn;
mod qpn;
mod reth;
mod service;
pub mod source_port;
mod syndrome;
#[cfg(test)]
mod vectors;
mod xrceth;

pub use aeth::Aeth;
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use encapsulation::{Datagram, EncapsulationError, LinkType, decapsulate, encapsulate};
pub use feth::Feth;
pub use frame::{FRAME_HEADER_BYTES, FrameFields};
pub use grh::{GRH_BYTES, grh};
pub use header_set::HeaderSet;
pub(crate) use header_set::{CnpReserved, Extensions};
pub use headers::Headers;
pub use icrc::{ICRC_BYTES, IcrcVerdict};
pub use immediate::{Ieth, ImmDt};
pub use opcode::Opcode;
pub use opcode_table::{OPCODES, OpcodeInfo, PayloadRule};
pub use operation::{Operation, OperationClass, Packets, Position};
pub use packet::{Packet, PacketError};
pub use psn::Psn;
pub use qpn::{ProcessIndex, Qpn};
pub use reth::Reth;
pub use service::{SERVICES, Service, ServiceRow};
pub use syndrome::{NakCode, Syndrome, credits, rnr_timer_ns, transport_timer_ns};
pub use xrceth::XrcEth;

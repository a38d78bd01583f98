//! Wire formats: every header as a checked view and a plain value.

mod aeth;
mod atomic_ack_eth;
mod atomic_eth;
mod bth;
mod deth;
pub mod encapsulation;
mod feth;
pub mod icrc;
mod ieth;
mod imm_dt;
mod opcode;
mod packet;
mod psn;
mod qpn;
mod reth;
mod syndrome;
mod xrceth;

pub use aeth::Aeth;
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use bth::Bth;
pub use deth::Deth;
pub use feth::Feth;
pub use icrc::Verdict;
pub use ieth::Ieth;
pub use imm_dt::ImmDt;
pub use opcode::{HeaderSet, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Service};
pub use packet::{Headers, Packet, PacketError};
pub use psn::Psn;
pub use qpn::Qpn;
pub use reth::Reth;
pub use syndrome::{NakCode, Syndrome, credits, rnr_timer_ns, transport_timer_ns};
pub use xrceth::XrcEth;

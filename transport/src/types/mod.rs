//! The vocabulary of verbs: the values that all layers use, numbered as the verbs ABI numbers them.
//!
//! Work requests as they are posted.

use alloc::sync::Arc;

use crate::path::Path;
use crate::wire::Qpn;

/// A scatter/gather element: `length` bytes at the process's address `address` under `lkey`. A length of 0 is
/// an empty element and is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// Virtual address (or offset, for a zero-based region).
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key, which is checked when the request executes, not when it is posted.
    pub lkey: u32,
}

impl From<&Sge> for KeyPiece {
    fn from(sge: &Sge) -> KeyPiece {
        KeyPiece { address: sge.address, length: sge.length, skip: 0, lkey: sge.lkey }
    }
}

bitflags::bitflags! {
    /// Flags of a send request (`IBV_SEND_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct SendFlags: u32 {
        /// Wait for all earlier READs and atomics of this queue pair.
        const FENCE = 1;
        /// Make a completion on success too.
        const SIGNALED = 2;
        /// Set the solicited-event bit in the last packet.
        const SOLICITED = 4;
        /// Data is copied during the post; L_Keys are ignored.
        const INLINE = 8;
        /// Checksum offload: ignored.
        const IP_CSUM = 16;
    }
}

/// The remote memory a one-sided operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteTarget {
    /// Virtual address in the peer's region.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
}

/// Destination of a datagram.
#[derive(Debug, Clone)]
pub struct UdDestination {
    /// Path of the address handle.
    pub path: Arc<Path>,
    /// Number of the remote queue pair.
    pub qpn: Qpn,
    /// Q_Key; with its top bit set the sending QP's own Q_Key is used.
    pub qkey: u32,
}

/// The part of a request to a target of DC that is not path and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DcDestination {
    /// Access key of the target.
    pub access_key: u64,
    /// Stream of the initiator that the request belongs to, modulo the number of streams.
    pub stream: u16,
}

/// Memory that a FLUSH covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushRange {
    /// Placement type bits: 1 global visibility, 2 persistence.
    pub placement: u8,
    /// Selectivity: 0 for the range given, 1 for the whole region.
    pub selectivity: u8,
    /// Length of the range in bytes.
    pub length: u32,
}

/// Parameters of BIND_MW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBind {
    /// Current R_Key of the window (its upper 24 bits name it).
    pub window_rkey: u32,
    /// New R_Key; the low byte is the consumer's.
    pub new_rkey: u32,
    /// L_Key of the region the window opens.
    pub region_lkey: u32,
    /// Address of the window's first byte.
    pub address: u64,
    /// Length of the window in bytes; 0 unbinds a type-1 window.
    pub length: u64,
    /// Remote rights (and `ZERO_BASED`).
    pub access: Access,
}

/// A send request (`struct ibv_send_wr`). Fields that an opcode does not use are ignored.
#[derive(Debug, Clone)]
pub struct SendRequest<'a> {
    /// Identifier that is returned in the completion.
    pub wr_id: u64,
    /// Operation of the request.
    pub opcode: SendOpcode,
    /// Flags of the request.
    pub flags: SendFlags,
    /// Local buffers, in order.
    pub sges: &'a [Sge],
    /// Payload for `SendFlags::INLINE`; `sges` is then ignored.
    pub inline_data: &'a [u8],
    /// Immediate data in network byte order.
    pub imm_data: [u8; 4],
    /// Key to invalidate (here for LOCAL_INV, at the peer for SEND_WITH_INV).
    pub invalidate_rkey: u32,
    /// Remote memory of WRITE, READ, atomics, FLUSH.
    pub remote: RemoteTarget,
    /// Operands of CmpSwap and FetchAdd.
    pub atomic: Option<AtomicOperation>,
    /// Range of FLUSH.
    pub flush: Option<FlushRange>,
    /// Destination on UD, SRD and DC.
    pub ud: Option<UdDestination>,
    /// Further fields of a destination on DC.
    pub dc: Option<DcDestination>,
    /// Remote XRC SRQ number on an XRC initiator.
    pub xrc_srqn: u32,
    /// Parameters of BIND_MW.
    pub bind: Option<WindowBind>,
    /// Configuration of CONFIGURE_KEY.
    pub key: Option<Arc<KeyConfiguration>>,
    /// Destination of COPY_MEMORY; its length is ignored, because the buffers have one.
    pub copy_to: Option<Sge>,
    /// Opcode of the completion, if it differs from the operation's.
    pub completes_as: Option<WcOpcode>,
    /// True if faults that an adapter finds only when it executes the request become its completion, as
    /// programs that were written for adapters expect. Otherwise the post is refused with an error that names
    /// the fault.
    pub faults_complete: bool,
}

impl SendRequest<'_> {
    /// Creates a request with only an identifier and an opcode, signaled, to fill in.
    pub const fn new(wr_id: u64, opcode: SendOpcode) -> SendRequest<'static> {
        SendRequest {
            wr_id,
            opcode,
            flags: SendFlags::SIGNALED,
            sges: &[],
            inline_data: &[],
            imm_data: [0; 4],
            invalidate_rkey: 0,
            remote: RemoteTarget { address: 0, rkey: 0 },
            atomic: None,
            flush: None,
            ud: None,
            dc: None,
            xrc_srqn: 0,
            bind: None,
            key: None,
            copy_to: None,
            completes_as: None,
            faults_complete: false,
        }
    }
}

/// A receive request (`struct ibv_recv_wr`).
#[derive(Debug, Clone, Copy)]
pub struct RecvRequest<'a> {
    /// Identifier that is returned in the completion.
    pub wr_id: u64,
    /// Buffers, filled in order.
    pub sges: &'a [Sge],
}

mod address_vector;
mod cause;
mod completion;
mod counter;
mod event;
mod failure;
mod fate;
mod memory_key;
mod mtu;
mod opcode;

mod queue_pair;
mod store_order;

pub use address_vector::{AddressVector, Gid};
pub use cause::{Cause, CqUse, DropReason};
pub use completion::{CompletionError, MAX_MESSAGE_BYTES, PostError, WcFlags, WcStatus, WorkCompletion};
pub use counter::Counter;
pub use event::{AsyncEventType, MrcBreach, MrcLossProof};
pub use failure::{
    FailedSend, FailureDetail, IgnoredAnswer, IgnoredAnswers, MemoryError, MemoryFault, Peer, RemoteRange,
};
pub use fate::{Fate, Flips};
pub use memory_key::{
    Access, BlockSignature, KeyConfiguration, KeyLayout, KeyPiece, KeySignature, SignatureChange,
    SignedBlocks,
};
pub use mtu::Mtu;
pub use opcode::{
    AtomicOperation, LocalData, Operand, QpTypes, SendOpcode, WR_OPCODES, WcOpcode, WrClass, WrInfo,
};
pub use queue_pair::{DcStreams, QP_TYPES, QpCapacity, QpState, QpType, QpTypeRow, VendorService};
pub use store_order::{
    STORE_GUARANTEES, SenderOrder, StoreEvidence, StoreGuarantee, StoreOrder, guarantees_as_markdown,
};

#[cfg(any(test, kani))]
mod proofs;

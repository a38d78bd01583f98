//! Work requests as they are posted.

use alloc::sync::Arc;

use super::{Access, AtomicOperation, KeyConfiguration, KeyPiece, SendOpcode, WcOpcode};
use crate::path::Path;
use crate::wire::Qpn;

/// One scatter/gather element: `length` bytes at the process's address `address` under `lkey`.
/// A length of 0 is an empty element and is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// Virtual address (or offset, for a zero-based region).
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Local key; looked at when the request executes, not when it is posted.
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
    /// The address handle's path.
    pub path: Arc<Path>,
    /// Remote queue pair.
    pub qpn: Qpn,
    /// Q_Key; with its top bit set the sending QP's own Q_Key is used.
    pub qkey: u32,
}

/// What a request to a target of DC names beside its path and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DcDestination {
    /// The target's access key.
    pub access_key: u64,
    /// The stream of the initiator that the request belongs to; those beyond the last one begin anew.
    pub stream: u16,
}

/// What a FLUSH covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushRange {
    /// Placement type bits: 1 global visibility, 2 persistence.
    pub placement: u8,
    /// Selectivity: 0 the range given, 1 the whole region.
    pub selectivity: u8,
    /// Bytes of the range.
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
    /// First byte of the window.
    pub address: u64,
    /// Bytes of the window; 0 unbinds a type-1 window.
    pub length: u64,
    /// Remote rights (and `ZERO_BASED`).
    pub access: Access,
}

/// A send request (`struct ibv_send_wr`). Fields that an opcode does not use are ignored.
#[derive(Debug, Clone)]
pub struct SendRequest<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub opcode: SendOpcode,
    /// How.
    pub flags: SendFlags,
    /// Local buffers, in order.
    pub sges: &'a [Sge],
    /// The bytes themselves, for `SendFlags::INLINE`; `sges` is then ignored.
    pub inline_data: &'a [u8],
    /// Immediate data: four bytes as they travel.
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
    /// The rest of a destination on DC.
    pub dc: Option<DcDestination>,
    /// Remote XRC SRQ number on an XRC initiator.
    pub xrc_srqn: u32,
    /// Parameters of BIND_MW.
    pub bind: Option<WindowBind>,
    /// What CONFIGURE_KEY makes of a key.
    pub key: Option<Arc<KeyConfiguration>>,
    /// Where COPY_MEMORY copies its buffers; its length does not count, as theirs does.
    pub copy_to: Option<Sge>,
    /// What its completion shows, if that is not what the operation says.
    pub completes_as: Option<WcOpcode>,
    /// Faults that an adapter finds only when it executes the request end as its completion, as programs that
    /// were written for adapters expect. Otherwise the post is refused, which names the fault at once.
    pub faults_complete: bool,
}

impl SendRequest<'_> {
    /// A request with nothing but an identity and an opcode, signaled, to fill in.
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
    /// Returned in the completion.
    pub wr_id: u64,
    /// Buffers, filled in order.
    pub sges: &'a [Sge],
}

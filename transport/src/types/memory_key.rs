//! Access rights of memory regions, memory windows and queue pairs, and indirect memory keys.

use alloc::vec::Vec;

bitflags::bitflags! {
    /// Access rights (`IBV_ACCESS_*`). On a queue pair they limit the kinds of operation that a peer may ask
    /// for (NAK "invalid request" otherwise); on a memory region or window they protect the memory (NAK
    /// "remote access error" otherwise).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// Local writes: receive scatter, READ target, atomic result. Reads are always allowed.
        const LOCAL_WRITE = 1;
        /// RDMA WRITE and ATOMIC WRITE by the peer; needs `LOCAL_WRITE` on an MR.
        const REMOTE_WRITE = 2;
        /// RDMA READ by the peer.
        const REMOTE_READ = 4;
        /// CmpSwap and FetchAdd by the peer; needs `LOCAL_WRITE` on an MR.
        const REMOTE_ATOMIC = 8;
        /// Memory windows may be bound to the region.
        const MW_BIND = 0x10;
        /// Remote addresses count from 0 instead of from the buffer's address.
        const ZERO_BASED = 0x20;
        /// On-demand paging: no page is pinned, as is always the case in a software device.
        const ON_DEMAND = 0x40;
        /// Huge pages: a hint, ignored.
        const HUGETLB = 0x80;
        /// FLUSH with placement "global visibility".
        const FLUSH_GLOBAL = 0x100;
        /// FLUSH with placement "persistence".
        const FLUSH_PERSISTENT = 0x200;
        /// Relaxed ordering: [`STORE_GUARANTEES`](super::STORE_GUARANTEES) lists the guarantees that stores
        /// there have. Only a shuffled schedule makes use of it.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Mask of the optional bits (1 << 20 … 1 << 29): unknown ones are ignored, never rejected.
    pub const OPTIONAL_RANGE: u32 = 0x3ff0_0000;
}

/// A piece of registered memory that an indirect key maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPiece {
    /// Address of the first byte, as in requests that use the region.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// Number of bytes behind the piece that are skipped; in the next round the piece continues there.
    pub skip: u32,
    /// Key of the region.
    pub lkey: u32,
}

/// The memory that an indirect key maps: a sequence of pieces, in several rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLayout {
    /// The pieces of a round.
    pub pieces: Vec<KeyPiece>,
    /// Number of rounds.
    pub rounds: u32,
}

impl KeyLayout {
    /// Creates the layout of these buffers one behind the other.
    pub fn of_list<'a, T>(buffers: &'a [T]) -> KeyLayout
    where
        KeyPiece: From<&'a T>,
    {
        KeyLayout { pieces: buffers.iter().map(KeyPiece::from).collect(), rounds: 1 }
    }
}

/// A configuration of an indirect key by a work request. Properties that it does not name keep their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyConfiguration {
    /// Number of the key.
    pub key: u32,
    /// Access rights of the key.
    pub access: Option<Access>,
    /// Memory of the key, whose first byte has address 0 for users of the key.
    pub layout: Option<KeyLayout>,
    /// Change of the key's signatures.
    pub signature: SignatureChange,
}

impl KeyConfiguration {
    /// Creates a configuration that changes no property of a key, to fill in.
    pub const fn new(key: u32) -> KeyConfiguration {
        KeyConfiguration { key, access: None, layout: None, signature: SignatureChange::None }
    }
}

/// Protection of data blocks: the format of their signature field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSignature {
    /// T10-DIF: a guard of two bytes, an application tag of two, a reference tag of four.
    T10Dif {
        /// True if the guard is an IP checksum; false for a CRC.
        is_checksum: bool,
        /// Initial value of the guard's calculation.
        seed: u16,
        /// Application tag.
        app_tag: u16,
        /// Reference tag of the first block.
        ref_tag: u32,
        /// True if each block's reference tag is one more than that of the block before.
        counts: bool,
        /// True if a block whose application tag is 0xffff is not checked.
        app_escapes: bool,
        /// True if a block whose tags have all bits set is not checked.
        tags_escape: bool,
    },
    /// CRC-32 of Fibre Channel, as Ethernet has it.
    Crc32 {
        /// Initial value of the calculation.
        seed: u32,
    },
    /// CRC-32C of iSCSI.
    Crc32c {
        /// Initial value of the calculation.
        seed: u32,
    },
    /// CRC-64 of XP10, as NVMe has it.
    Crc64 {
        /// Initial value of the calculation.
        seed: u64,
    },
}

impl BlockSignature {
    /// Returns the length in bytes of the field behind each block.
    pub const fn field_bytes(&self) -> u64 {
        match self {
            BlockSignature::T10Dif { .. } | BlockSignature::Crc64 { .. } => 8,
            BlockSignature::Crc32 { .. } | BlockSignature::Crc32c { .. } => 4,
        }
    }
}

/// Data in blocks, each followed by a signature field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedBlocks {
    /// Bytes of data in a block; not 0.
    pub block_bytes: u32,
    /// Format of the signature field.
    pub signature: BlockSignature,
}

/// The signatures of an indirect key: data that leaves memory loses the fields of memory, which are checked,
/// and gets those of the wire; data that arrives loses the fields of the wire and gets those of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeySignature {
    /// Blocks in memory; `None` if memory has data alone.
    pub memory: Option<SignedBlocks>,
    /// Blocks on the wire; `None` if the wire has data alone.
    pub wire: Option<SignedBlocks>,
    /// Bytes of the source's field that are checked, as a mask with the first byte in bit 7.
    pub check_mask: u8,
    /// Bytes of the destination's field that are copied, and not calculated, as a mask with the first byte in
    /// bit 7.
    pub copy_mask: u8,
}

/// Change of a key's signatures by a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignatureChange {
    /// The signatures keep their values.
    #[default]
    None,
    /// The key has no signatures any more.
    Reset,
    /// The key gets these signatures.
    Set(KeySignature),
}

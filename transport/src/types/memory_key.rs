//! Indirect memory keys and their configuration in work requests. mlx5 calls them mkeys.

use alloc::vec::Vec;

use super::Access;

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

//! Indirect memory keys: what a work request says of one. mlx5 calls them mkeys.

use alloc::vec::Vec;

use super::Access;

/// A piece of registered memory that an indirect key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPiece {
    /// First byte, as users of the region say it.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Bytes behind it that are left out; in the next round the piece goes on there.
    pub skip: u32,
    /// Key of the region.
    pub lkey: u32,
}

/// The memory that an indirect key leads to: its pieces one behind the other, in several rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLayout {
    /// The pieces of a round.
    pub pieces: Vec<KeyPiece>,
    /// How often they follow each other.
    pub rounds: u32,
}

impl KeyLayout {
    /// These buffers one behind the other.
    pub fn of_list<'a, T>(buffers: &'a [T]) -> KeyLayout
    where
        KeyPiece: From<&'a T>,
    {
        KeyLayout { pieces: buffers.iter().map(KeyPiece::from).collect(), rounds: 1 }
    }
}

/// What a work request makes of an indirect key. What it does not name stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyConfiguration {
    /// The key.
    pub key: u32,
    /// Its rights.
    pub access: Option<Access>,
    /// Its memory; users of the key call the first byte 0.
    pub layout: Option<KeyLayout>,
    /// Its signatures.
    pub signature: SignatureChange,
}

impl KeyConfiguration {
    /// One that changes nothing of a key, to fill in.
    pub const fn new(key: u32) -> KeyConfiguration {
        KeyConfiguration { key, access: None, layout: None, signature: SignatureChange::None }
    }
}

/// How blocks of data are protected: what their field has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSignature {
    /// T10-DIF: a guard of two bytes, an application tag of two, a reference tag of four.
    T10Dif {
        /// The guard is a checksum of IP, and not a CRC.
        is_checksum: bool,
        /// What the guard's calculation begins with.
        seed: u16,
        /// Application tag.
        app_tag: u16,
        /// Reference tag of the first block.
        ref_tag: u32,
        /// Each block's reference tag is one more than that before.
        counts: bool,
        /// A block whose application tag is 0xffff is not checked.
        app_escapes: bool,
        /// A block whose tags have all bits set is not checked.
        tags_escape: bool,
    },
    /// CRC-32 of Fibre Channel, as Ethernet has it.
    Crc32 {
        /// What the calculation begins with.
        seed: u32,
    },
    /// CRC-32C of iSCSI.
    Crc32c {
        /// What the calculation begins with.
        seed: u32,
    },
    /// CRC-64 of XP10, as NVMe has it.
    Crc64 {
        /// What the calculation begins with.
        seed: u64,
    },
}

impl BlockSignature {
    /// Bytes of the field behind each block.
    pub const fn field_bytes(&self) -> u64 {
        match self {
            BlockSignature::T10Dif { .. } | BlockSignature::Crc64 { .. } => 8,
            BlockSignature::Crc32 { .. } | BlockSignature::Crc32c { .. } => 4,
        }
    }
}

/// Data in blocks, each with a field behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedBlocks {
    /// Bytes of data in a block; not 0.
    pub block_bytes: u32,
    /// Its field.
    pub signature: BlockSignature,
}

/// The signatures of an indirect key: data that leaves memory loses the fields of memory, which are checked,
/// and gets those of the wire; data that arrives the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeySignature {
    /// The blocks in memory; none: memory has data alone.
    pub memory: Option<SignedBlocks>,
    /// The blocks on the wire.
    pub wire: Option<SignedBlocks>,
    /// Bytes of fields that are checked where data comes from, the first one in bit 7.
    pub check_mask: u8,
    /// Bytes of fields that are copied, and not calculated, where data goes to.
    pub copy_mask: u8,
}

/// What a configuration makes of the signatures of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignatureChange {
    /// They stay.
    #[default]
    None,
    /// It has none.
    Reset,
    /// These.
    Set(KeySignature),
}

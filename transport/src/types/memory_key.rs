//! Indirect memory keys: what a work request says of one. mlx5 calls them mkeys.

use alloc::vec::Vec;

use super::{Access, Sge};

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
    pub fn of_list(sges: &[Sge]) -> KeyLayout {
        let piece = |sge: &Sge| KeyPiece { address: sge.address, length: sge.length, skip: 0, lkey: sge.lkey };
        KeyLayout { pieces: sges.iter().map(piece).collect(), rounds: 1 }
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
}

//! The encoding of a slot.

use super::geometry::{LINE_WORDS, SLOT_WORDS};

/// Number of words of a slot behind the first two.
const INLINE_WORDS: usize = SLOT_WORDS - 2;
/// Number of bytes of a batch that fit in its slot.
pub(crate) const INLINE_BYTES: usize = INLINE_WORDS * size_of::<u64>();
/// Number of words behind the first two in the first line of a slot.
pub(super) const FIRST_LINE_WORDS: usize = LINE_WORDS - 2;
/// Length of the longest batch, in bytes.
pub(crate) const MAX_BATCH_BYTES: u32 = 65_507;

/// The kind of a slot's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// A description of a path, which batches refer to by its number from now on.
    Path = 1,
    /// Packets with an ICRC.
    Sealed = 2,
    /// Packets in which the field of the ICRC is empty.
    Unsealed = 3,
}

impl SlotKind {
    const fn of(byte: u8) -> Option<SlotKind> {
        match byte {
            1 => Some(SlotKind::Path),
            2 => Some(SlotKind::Sealed),
            3 => Some(SlotKind::Unsealed),
            _ => None,
        }
    }
}

/// A slot without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) kind: SlotKind,
    /// Number of the path that the batch took, or that is described.
    pub(crate) path: u8,
    /// Length of every packet but the last, in bytes; at least 1.
    pub(crate) segment_bytes: u32,
    /// Length of the batch, in bytes; at least 1 and at most [`MAX_BATCH_BYTES`].
    pub(crate) length_bytes: u32,
}

impl Slot {
    /// Reports whether the bytes are in the slot itself.
    pub(super) const fn is_inline(&self) -> bool {
        self.length_bytes as usize <= INLINE_BYTES
    }

    /// Encodes the first two words, for a lap.
    #[inline]
    pub(super) const fn encode(&self, lap: u32) -> [u64; 2] {
        let first = (lap as u64) << 32 | (self.path as u64) << 8 | self.kind as u64;
        [first, (self.segment_bytes as u64) << 32 | self.length_bytes as u64]
    }

    /// Returns the lap in which a slot was written, from its first word.
    #[inline]
    pub(super) const fn lap(first: u64) -> u32 {
        (first >> 32) as u32
    }

    /// Decodes the first two words; `None` if no producer writes them so.
    #[inline]
    pub(super) fn decode([first, second]: [u64; 2]) -> Option<Slot> {
        let [kind, path, 0, 0] = (first as u32).to_le_bytes() else { return None };
        let slot = Slot {
            kind: SlotKind::of(kind)?,
            path,
            segment_bytes: (second >> 32) as u32,
            length_bytes: second as u32,
        };
        let is_batch = (1..=MAX_BATCH_BYTES).contains(&slot.length_bytes)
            && (1..=slot.length_bytes).contains(&slot.segment_bytes);
        is_batch.then_some(slot)
    }
}

/// Returns the bytes of a batch as words: as many as they fill, the last one filled up with zeros.
#[inline]
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks::<8>();
    let last = match *rest {
        [] => None,
        // Packets consist of whole words of four bytes.
        [a, b, c, d] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
        _ => Some(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))),
    };
    whole.iter().map(|word| u64::from_le_bytes(*word)).chain(last)
}

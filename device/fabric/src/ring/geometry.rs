//! The layout of a ring.

/// Number of words in a cache line.
pub(crate) const LINE_WORDS: usize = 8;
/// Number of words of a slot: two lines, which processors fetch together. Short batches touch the first line
/// only.
pub(crate) const SLOT_WORDS: usize = 2 * LINE_WORDS;
/// Number of bytes in a cache line. Batches begin at a multiple of it in the data.
pub(super) const LINE_BYTES: u64 = 64;

/// Index of the word with the number of slots that the consumer has taken since the beginning.
pub(super) const TAKEN_SLOTS: usize = 0;
/// Index of the word with the number of data bytes that the consumer has taken since the beginning.
pub(super) const TAKEN_BYTES: usize = 1;
/// Index of the waiter flag, which is 1 while the consumer wants to be woken.
pub(super) const WAITS: usize = LINE_WORDS;
const HEADER_WORDS: usize = 2 * LINE_WORDS;

/// Number of slots of the largest ring that is accepted from another process.
const MAX_SLOTS: u32 = 1 << 16;
/// Number of data bytes of the largest ring that is accepted from another process.
const MAX_DATA_BYTES: u32 = 1 << 24;

/// The size of a ring. Both numbers are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    slots: u32,
    data_bytes: u32,
}

impl Geometry {
    /// Returns the size with this number of slots and bytes of data; `None` if no ring may have it.
    pub(crate) const fn new(slots: u32, data_bytes: u32) -> Option<Geometry> {
        let is_possible = slots.is_power_of_two()
            && data_bytes.is_power_of_two()
            && slots <= MAX_SLOTS
            && data_bytes <= MAX_DATA_BYTES
            && data_bytes as u64 >= LINE_BYTES;
        if is_possible { Some(Geometry { slots, data_bytes }) } else { None }
    }

    /// Returns the number of slots.
    pub(crate) const fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the number of data bytes.
    pub(crate) const fn data_bytes(self) -> u32 {
        self.data_bytes
    }

    /// Returns the number of words in front of the data.
    pub(crate) const fn words(self) -> usize {
        HEADER_WORDS + self.slots as usize * SLOT_WORDS
    }

    /// Returns the length of the whole memory, in bytes.
    pub(crate) const fn bytes(self) -> usize {
        self.words() * size_of::<u64>() + self.data_bytes as usize
    }

    /// Returns the index of the first word of the slot that is written as number `position`, from 0, since
    /// the beginning.
    #[inline]
    pub(super) const fn slot_word(self, position: u64) -> usize {
        HEADER_WORDS + (position & (self.slots as u64 - 1)) as usize * SLOT_WORDS
    }

    /// Returns the lap round the ring in which that slot is written, from 1; a slot that was never written
    /// has 0. Laps begin again with 0 after 2^32 of them.
    #[inline]
    pub(super) const fn lap(self, position: u64) -> u32 {
        ((position >> self.slots.trailing_zeros()) as u32).wrapping_add(1)
    }

    /// Returns the offset in the data of the byte that is written as number `position` since the beginning.
    #[inline]
    pub(super) const fn data_offset(self, position: u64) -> usize {
        (position & (self.data_bytes as u64 - 1)) as usize
    }

    /// Returns how many data bytes a batch takes that does not fit in its slot.
    #[inline]
    pub(super) const fn data_cost(length_bytes: u32) -> u64 {
        (length_bytes as u64).next_multiple_of(LINE_BYTES)
    }
}

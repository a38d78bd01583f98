//! Where the parts of a ring are.

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;
/// Bytes of a cache line. Batches begin at such an offset in the data.
pub(super) const LINE_BYTES: u64 = 64;

/// The word with the slots that the consumer has taken since the beginning.
pub(super) const TAKEN_SLOTS: usize = 0;
/// The word with the bytes of data that it has taken since the beginning.
pub(super) const TAKEN_BYTES: usize = 1;
/// The word that is 1 while the consumer wants to be woken.
pub(super) const WAITS: usize = LINE_WORDS;
const HEADER_WORDS: usize = 2 * LINE_WORDS;

/// Slots and bytes of data of the largest ring that is accepted from another process.
const MOST_SLOTS: u32 = 1 << 16;
const MOST_DATA_BYTES: u32 = 1 << 24;

/// The size of a ring. Both numbers are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    slots: u32,
    data_bytes: u32,
}

impl Geometry {
    /// A ring of so many slots and bytes of data; `None`: there are none of this size.
    pub(crate) const fn new(slots: u32, data_bytes: u32) -> Option<Geometry> {
        let is_possible = slots.is_power_of_two()
            && data_bytes.is_power_of_two()
            && slots <= MOST_SLOTS
            && data_bytes <= MOST_DATA_BYTES
            && data_bytes as u64 >= LINE_BYTES;
        if is_possible { Some(Geometry { slots, data_bytes }) } else { None }
    }

    /// Slots.
    pub(crate) const fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes of data.
    pub(crate) const fn data_bytes(self) -> u32 {
        self.data_bytes
    }

    /// Words in front of the data.
    pub(crate) const fn words(self) -> usize {
        HEADER_WORDS + self.slots as usize * LINE_WORDS
    }

    /// Bytes of the whole.
    pub(crate) const fn bytes(self) -> usize {
        self.words() * size_of::<u64>() + self.data_bytes as usize
    }

    /// The first word of the slot that is written as number `position`, from 0, since the beginning.
    #[inline]
    pub(super) const fn slot_word(self, position: u64) -> usize {
        HEADER_WORDS + (position & (self.slots as u64 - 1)) as usize * LINE_WORDS
    }

    /// The lap round the ring in which that slot is written, from 1; a slot that was never written has 0.
    /// Laps begin again with 0 after 2^32 of them.
    #[inline]
    pub(super) const fn lap(self, position: u64) -> u32 {
        ((position >> self.slots.trailing_zeros()) as u32).wrapping_add(1)
    }

    /// The offset in the data of the byte that is written as number `position` since the beginning.
    #[inline]
    pub(super) const fn data_offset(self, position: u64) -> usize {
        (position & (self.data_bytes as u64 - 1)) as usize
    }

    /// Bytes of data that a batch takes which does not fit in its slot.
    #[inline]
    pub(super) const fn data_cost(length_bytes: u32) -> u64 {
        (length_bytes as u64).next_multiple_of(LINE_BYTES)
    }
}

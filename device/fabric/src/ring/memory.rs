//! Requirements of a ring on its memory.

use pumice_platform::word::AtomicWord;

use super::geometry::SLOT_WORDS;

/// Memory that two processes share, as one of them sees it: words in front, data behind. Either process may
/// write anything anywhere at any time.
pub(crate) trait RingMemory {
    /// Type of an atomic number.
    type AtomicWord: AtomicWord;

    /// Returns the word of this number. There are as many as [`Geometry::words`](super::Geometry::words)
    /// says.
    fn word(&self, index: usize) -> &Self::AtomicWord;

    /// Returns the words of the slot that begins with the word of this number; `None` if it is beyond the
    /// last word.
    fn slot(&self, first: usize) -> Option<&[Self::AtomicWord; SLOT_WORDS]>;

    /// Copies bytes to an offset in the data. The caller does not go beyond the end.
    fn write(&self, offset: usize, bytes: &[u8]);

    /// Copies bytes as [`write`](RingMemory::write) does, past the cache where the processor can.
    fn stream(&self, offset: usize, bytes: &[u8]) {
        self.write(offset, bytes);
    }

    /// Copies bytes from an offset in the data. The caller does not go beyond the end.
    fn read(&self, offset: usize, bytes: &mut [u8]);
}

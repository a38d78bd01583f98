//! The consumer: the side of a ring that reads.

use std::sync::atomic::Ordering;

use pumice_platform::word::AtomicWord;

use super::Broken;
use super::geometry::{Geometry, TAKEN_BYTES, TAKEN_SLOTS, WAITS};
use super::memory::RingMemory;
use super::producer::Position;
use super::slot::{FIRST_LINE_WORDS, INLINE_BYTES, MAX_BATCH_BYTES, Slot, SlotKind};

/// The error of a slot that is not a short batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotShort;

/// The reader of a ring's batches.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    geometry: Geometry,
    taken: Position,
}

impl<M: RingMemory> Consumer<M> {
    /// Creates the consumer of a ring that was empty and new when its producer invited this process.
    pub(crate) fn new(memory: M, geometry: Geometry) -> Consumer<M> {
        Consumer { memory, geometry, taken: Position::default() }
    }

    /// Reports whether there is a slot to take.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.next_lap(Ordering::Acquire) == self.geometry.lap(self.taken.slots)
    }

    #[inline]
    fn next_lap(&self, order: Ordering) -> u32 {
        Slot::lap(self.memory.word(self.geometry.slot_word(self.taken.slots)).load(order))
    }

    /// Takes the next slot and copies its bytes to the beginning of `buffer`. Returns `None` if the ring is
    /// empty.
    ///
    /// # Errors
    /// Fails if the producer wrote something invalid.
    #[inline]
    pub(crate) fn take(
        &mut self,
        buffer: &mut [u8; MAX_BATCH_BYTES as usize],
    ) -> Result<Option<Slot>, Broken> {
        let line = self.memory.slot(self.geometry.slot_word(self.taken.slots)).ok_or(Broken)?;
        let [first, second, inline @ ..] = line;
        let first = first.load(Ordering::Acquire);
        let (lap, expected) = (Slot::lap(first), self.geometry.lap(self.taken.slots));
        if lap != expected {
            return if lap == expected.wrapping_sub(1) { Ok(None) } else { Err(Broken) };
        }
        let slot = Slot::decode([first, second.load(Ordering::Relaxed)]).ok_or(Broken)?;
        if slot.is_inline() {
            copy_inline(buffer.first_chunk_mut().ok_or(Broken)?, inline, slot.length_bytes);
        } else {
            let bytes = buffer.get_mut(..slot.length_bytes as usize).ok_or(Broken)?;
            if slot.length_bytes > self.geometry.data_bytes() {
                return Err(Broken);
            }
            self.read_data(bytes);
            self.taken.bytes += Geometry::data_cost(slot.length_bytes);
            self.memory.word(TAKEN_BYTES).store(self.taken.bytes, Ordering::Release);
        }
        self.taken.slots += 1;
        self.memory.word(TAKEN_SLOTS).store(self.taken.slots, Ordering::Release);
        Ok(Some(slot))
    }

    /// Copies the bytes of the next slot to the beginning of `buffer`, if it is a batch without ICRC that
    /// fits in its slot, and does not take it. Returns `Ok(None)` if the ring is empty.
    ///
    /// # Errors
    /// The slot has something else.
    #[inline]
    pub(crate) fn peek_short(&self, buffer: &mut [u8; INLINE_BYTES]) -> Result<Option<Slot>, NotShort> {
        let line = self.memory.slot(self.geometry.slot_word(self.taken.slots)).ok_or(NotShort)?;
        let [first, second, inline @ ..] = line;
        let first = first.load(Ordering::Acquire);
        let (lap, expected) = (Slot::lap(first), self.geometry.lap(self.taken.slots));
        if lap != expected {
            return if lap == expected.wrapping_sub(1) { Ok(None) } else { Err(NotShort) };
        }
        let slot = Slot::decode([first, second.load(Ordering::Relaxed)]);
        let slot = slot.filter(|slot| slot.kind == SlotKind::Unsealed && slot.is_inline()).ok_or(NotShort)?;
        copy_inline(buffer, inline, slot.length_bytes);
        Ok(Some(slot))
    }

    /// Takes the slot that [`peek_short`](Consumer::peek_short) has copied.
    #[inline]
    pub(crate) fn take_peeked(&mut self) {
        self.taken.slots += 1;
        self.memory.word(TAKEN_SLOTS).store(self.taken.slots, Ordering::Release);
    }

    fn read_data(&self, bytes: &mut [u8]) {
        let offset = self.geometry.data_offset(self.taken.bytes);
        let to_end = self.geometry.data_bytes() as usize - offset;
        let (first, rest) = bytes.split_at_mut(bytes.len().min(to_end));
        self.memory.read(offset, first);
        if !rest.is_empty() {
            self.memory.read(0, rest);
        }
    }

    /// Sets the waiter flag, which asks the producer to wake this side with the next slot. Returns false if
    /// there is a slot already and this side must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        // Either the producer exchanges this word later, and finds that this side waits, or it did so before,
        // and this side sees what the producer wrote before that.
        self.memory.word(WAITS).swap(1, Ordering::AcqRel);
        !self.has_more()
    }
}

/// Copies the bytes of a batch from its slot: all words of each line that has some, because a copy of a
/// constant length needs no function call.
#[inline]
fn copy_inline<W: AtomicWord>(to: &mut [u8; INLINE_BYTES], from: &[W], length_bytes: u32) {
    let (words, _) = to.as_chunks_mut::<8>();
    let mut copied = words.iter_mut().zip(from);
    for (to, word) in copied.by_ref().take(FIRST_LINE_WORDS) {
        *to = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if length_bytes as usize > FIRST_LINE_WORDS * size_of::<u64>() {
        for (to, word) in copied {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
    }
}

//! The side of a ring that reads.

use std::sync::atomic::Ordering;

use pumice_ground::word::Word;

use super::Broken;
use super::geometry::{Geometry, LINE_WORDS, TAKEN_BYTES, TAKEN_SLOTS, WAITS};
use super::memory::RingMemory;
use super::producer::Position;
use super::slot::{self, MAX_BATCH_BYTES, Slot};

/// Reads batches.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    geometry: Geometry,
    taken: Position,
}

impl<M: RingMemory> Consumer<M> {
    /// The consumer of a ring that was empty and new when its producer invited this process.
    pub(crate) fn new(memory: M, geometry: Geometry) -> Consumer<M> {
        Consumer { memory, geometry, taken: Position::default() }
    }

    /// Whether there is a slot to take.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.next_lap(Ordering::Acquire) == self.geometry.lap(self.taken.slots)
    }

    #[inline]
    fn next_lap(&self, order: Ordering) -> u32 {
        Slot::lap(self.memory.word(self.geometry.slot_word(self.taken.slots)).load(order))
    }

    /// Takes the next slot, and its bytes to the beginning of `buffer`. `None`: there is none.
    ///
    /// # Errors
    /// The producer wrote what no producer writes.
    #[inline]
    pub(crate) fn take(
        &mut self,
        buffer: &mut [u8; MAX_BATCH_BYTES as usize],
    ) -> Result<Option<Slot>, Broken> {
        let start = self.geometry.slot_word(self.taken.slots);
        let first = self.memory.word(start).load(Ordering::Acquire);
        let (lap, expected) = (Slot::lap(first), self.geometry.lap(self.taken.slots));
        if lap != expected {
            return if lap == expected.wrapping_sub(1) { Ok(None) } else { Err(Broken) };
        }
        let mut words = [0; LINE_WORDS];
        for (index, word) in (start..).zip(&mut words).skip(1) {
            *word = self.memory.word(index).load(Ordering::Relaxed);
        }
        let [_, second, inline @ ..] = words;
        let slot = Slot::decode([first, second]).ok_or(Broken)?;
        let length = slot.length_bytes as usize;
        let bytes = buffer.get_mut(..length).ok_or(Broken)?;
        if slot.is_inline() {
            bytes.copy_from_slice(slot::to_bytes(inline).get(..length).ok_or(Broken)?);
        } else {
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

    fn read_data(&self, bytes: &mut [u8]) {
        let offset = self.geometry.data_offset(self.taken.bytes);
        let to_end = self.geometry.data_bytes() as usize - offset;
        let (first, rest) = bytes.split_at_mut(bytes.len().min(to_end));
        self.memory.read(offset, first);
        if !rest.is_empty() {
            self.memory.read(0, rest);
        }
    }

    /// Asks the producer to wake this side with the next slot. False: there is one already, and this side
    /// must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.memory.word(WAITS).store(1, Ordering::Relaxed);
        self.memory.fence();
        !self.has_more()
    }
}

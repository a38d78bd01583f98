//! The producer: the side of a ring that writes.

use std::sync::atomic::Ordering;

use pumice_model::port::batch::CopyWay;
use pumice_platform::word::AtomicWord;

use super::Broken;
use super::geometry::{Geometry, TAKEN_BYTES, TAKEN_SLOTS, WAITS};
use super::memory::RingMemory;
use super::slot::{INLINE_BYTES, Slot, words_of};

/// Result of pushing a batch into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingPushOutcome {
    /// The batch is in the ring, and the consumer polls, or will poll before it sleeps.
    Done,
    /// The batch is in the ring, and the consumer sleeps: the caller has to wake it.
    DoneWake,
    /// The ring has no room.
    Full,
}

/// Position in the slots and in the data: how much one side has written, or the other has taken, since the
/// beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) slots: u64,
    pub(super) bytes: u64,
}

/// The writer of a ring's batches.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    geometry: Geometry,
    written: Position,
    /// Position up to which the consumer was last seen to have taken.
    taken: Position,
}

impl<M: RingMemory> Producer<M> {
    /// Creates the producer of a new ring, whose memory is all zero.
    pub(crate) fn new(memory: M, geometry: Geometry) -> Producer<M> {
        Producer { memory, geometry, written: Position::default(), taken: Position::default() }
    }

    /// Returns the size of the ring.
    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Writes invalid bytes into the next slot.
    #[cfg(test)]
    pub(crate) fn scribble(&mut self) {
        self.memory.word(self.geometry.slot_word(self.written.slots)).store(u64::MAX, Ordering::Release);
    }

    /// Reports whether `slots` slots, with batches of `length_bytes` in all, fit in now.
    ///
    /// # Errors
    /// Fails if the consumer claims to have taken what was not written.
    #[inline]
    pub(crate) fn has_room(&mut self, slots: u32, length_bytes: u32) -> Result<bool, Broken> {
        let needed_bytes = Geometry::data_cost(length_bytes);
        if self.fits(slots, needed_bytes) {
            return Ok(true);
        }
        self.look()?;
        Ok(self.fits(slots, needed_bytes))
    }

    #[inline]
    fn fits(&self, slots: u32, needed_bytes: u64) -> bool {
        let used_slots = self.written.slots.wrapping_sub(self.taken.slots);
        let used_bytes = self.written.bytes.wrapping_sub(self.taken.bytes);
        used_slots + u64::from(slots) <= u64::from(self.geometry.slots())
            && used_bytes + needed_bytes <= u64::from(self.geometry.data_bytes())
    }

    /// Reads the consumer's position.
    fn look(&mut self) -> Result<(), Broken> {
        let seen = Position {
            slots: self.memory.word(TAKEN_SLOTS).load(Ordering::Acquire),
            bytes: self.memory.word(TAKEN_BYTES).load(Ordering::Acquire),
        };
        let is_between = |before: u64, now: u64, after: u64| before <= now && now <= after;
        let is_possible = is_between(self.taken.slots, seen.slots, self.written.slots)
            && is_between(self.taken.bytes, seen.bytes, self.written.bytes);
        if !is_possible {
            return Err(Broken);
        }
        self.taken = seen;
        Ok(())
    }

    /// Returns the numbers of data bytes that were written, and that the consumer has taken by now, since the
    /// beginning.
    ///
    /// # Errors
    /// Fails as [`has_room`](Producer::has_room) does.
    pub(crate) fn progress(&mut self) -> Result<(u64, u64), Broken> {
        self.look()?;
        Ok((self.written.bytes, self.taken.bytes))
    }

    /// Writes a batch, whose length is that of `bytes`, by ordinary stores.
    ///
    /// # Errors
    /// Fails as [`has_room`](Producer::has_room) does.
    #[inline]
    pub(crate) fn push(&mut self, slot: &Slot, bytes: &[u8]) -> Result<RingPushOutcome, Broken> {
        self.push_by(slot, bytes, CopyWay::Cached)
    }

    /// Writes a batch, whose length is that of `bytes`; `way`: how, if it does not fit in its slot.
    ///
    /// # Errors
    /// Fails as [`has_room`](Producer::has_room) does.
    #[inline]
    pub(crate) fn push_by(
        &mut self,
        slot: &Slot,
        bytes: &[u8],
        way: CopyWay,
    ) -> Result<RingPushOutcome, Broken> {
        let data_bytes = if slot.is_inline() { 0 } else { slot.length_bytes };
        if !self.has_room(1, data_bytes)? {
            return Ok(RingPushOutcome::Full);
        }
        let [first, second] = slot.encode(self.geometry.lap(self.written.slots));
        let line = self.memory.slot(self.geometry.slot_word(self.written.slots)).ok_or(Broken)?;
        let [lap, lengths, inline @ ..] = line;
        if slot.is_inline() {
            for (to, word) in inline.iter().zip(words_of(bytes)) {
                to.store(word, Ordering::Relaxed);
            }
        } else {
            self.write_data(bytes, way);
        }
        lengths.store(second, Ordering::Relaxed);
        lap.store(first, Ordering::Release);
        self.written.slots += 1;
        self.written.bytes += Geometry::data_cost(data_bytes);
        // Either this side sees that the other is about to sleep, or the other side sees the slot when it
        // polls for the last time. The cache line of this word is in this side's cache until the other
        // sleeps, so that an exchange costs less than a fence.
        let wakes = self.memory.word(WAITS).swap(0, Ordering::AcqRel) != 0;
        Ok(if wakes { RingPushOutcome::DoneWake } else { RingPushOutcome::Done })
    }

    /// Writes a batch that fits in its slot, as [`push`](Producer::push) does. Returns `None`, and writes
    /// nothing, if the batch is longer or the ring has no room.
    #[inline]
    pub(crate) fn push_short(&mut self, slot: &Slot, bytes: &[u8]) -> Option<RingPushOutcome> {
        if bytes.len() > INLINE_BYTES || !self.fits(1, 0) {
            return None;
        }
        let [first, second] = slot.encode(self.geometry.lap(self.written.slots));
        let line = self.memory.slot(self.geometry.slot_word(self.written.slots))?;
        let [lap, lengths, inline @ ..] = line;
        let (whole, rest) = bytes.as_chunks::<8>();
        for (to, word) in inline.iter().zip(whole) {
            to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            // Packets consist of whole words of four bytes.
            let last = rest.first_chunk::<4>().map_or(0, |word| u32::from_le_bytes(*word));
            inline.get(whole.len())?.store(last.into(), Ordering::Relaxed);
        }
        lengths.store(second, Ordering::Relaxed);
        lap.store(first, Ordering::Release);
        self.written.slots += 1;
        // See `push_by`.
        let wakes = self.memory.word(WAITS).swap(0, Ordering::AcqRel) != 0;
        Some(if wakes { RingPushOutcome::DoneWake } else { RingPushOutcome::Done })
    }

    fn write_data(&self, bytes: &[u8], way: CopyWay) {
        let offset = self.geometry.data_offset(self.written.bytes);
        let to_end = self.geometry.data_bytes() as usize - offset;
        let (first, rest) = bytes.split_at(bytes.len().min(to_end));
        let write = |offset, bytes| match way {
            CopyWay::Cached => self.memory.write(offset, bytes),
            CopyWay::Streaming => self.memory.stream(offset, bytes),
        };
        write(offset, first);
        if !rest.is_empty() {
            write(0, rest);
        }
    }
}

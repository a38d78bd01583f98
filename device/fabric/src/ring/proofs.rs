//! Proofs about rings: the layout, the encoding of slots, and the checks of a producer.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_transport::proofs::{Values, check, check_all};

use super::geometry::{LINE_BYTES, LINE_WORDS, SLOT_WORDS, TAKEN_BYTES, TAKEN_SLOTS, WAITS};
use super::slot::words_of;
use super::{
    Broken, Consumer, Geometry, INLINE_BYTES, MAX_BATCH_BYTES, Producer, RingMemory, RingPushOutcome, Slot,
    SlotKind,
};

/// Returns any size that a ring can have.
fn geometry(from: &mut Values) -> Option<Geometry> {
    Geometry::new(1 << from.up_to(16), 1 << from.between(6, 24))
}

fn kind(from: &mut Values) -> SlotKind {
    from.one_of(&[SlotKind::Path, SlotKind::Sealed, SlotKind::Unsealed])
}

/// Returns any slot that a producer writes.
fn slot(from: &mut Values) -> Slot {
    let length_bytes = from.between(1, MAX_BATCH_BYTES.into()) as u32;
    let segment_bytes = from.between(1, length_bytes.into()) as u32;
    Slot { kind: kind(from), path: from.u8(), segment_bytes, length_bytes }
}

/// Checks that a ring which another process offers has powers of two for sizes, within limits, or is refused.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_ring_has_sizes_that_are_powers_of_two() {
    check(|from| {
        let size = |from: &mut Values| if from.bool() { from.u32() } else { 1 << from.up_to(31) };
        let (slots, data_bytes) = (size(from), size(from));
        let geometry = Geometry::new(slots, data_bytes);
        let is_possible = slots.count_ones() == 1
            && data_bytes.count_ones() == 1
            && slots <= 1 << 16
            && (64..=1 << 24).contains(&data_bytes);
        assert_eq!(geometry.is_some(), is_possible);
        if let Some(geometry) = geometry {
            assert_eq!((geometry.slots(), geometry.data_bytes()), (slots, data_bytes));
            assert!(geometry.bytes() <= (1 << 24) + 128 * ((1 << 16) + 1));
        }
    });
}

/// Checks that each slot is behind the header and in front of the data, and that an offset in the data is in
/// the data.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_offsets_of_a_ring_are_in_its_parts() {
    check(|from| {
        let (Some(geometry), position) = (geometry(from), from.u64()) else { return };
        let word = geometry.slot_word(position);
        assert!(word >= 2 * LINE_WORDS && word + SLOT_WORDS <= geometry.words());
        assert_eq!(word % SLOT_WORDS, 0);
        assert!(geometry.data_offset(position) < geometry.data_bytes() as usize);
        assert_eq!(geometry.words() * 8 + geometry.data_bytes() as usize, geometry.bytes());
    });
}

/// Checks that slot and lap identify one of 2^32 positions: no two positions that are near have the same.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_slot_and_its_lap_tell_the_position() {
    check(|from| {
        let Some(geometry) = geometry(from) else { return };
        let (position, ahead) = (from.up_to(1 << 62), from.up_to(u32::MAX.into()));
        let later = position + ahead;
        let is_same = geometry.slot_word(position) == geometry.slot_word(later)
            && geometry.lap(position) == geometry.lap(later);
        assert_eq!(is_same, ahead == 0);
        // A slot that was written a whole lap ago differs from the one written now.
        let next = position + u64::from(geometry.slots());
        assert_eq!(geometry.slot_word(next), geometry.slot_word(position));
        assert_eq!(geometry.lap(next), geometry.lap(position).wrapping_add(1));
    });
}

/// Checks that a batch takes whole lines of the data, and at most one line more than its bytes need.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_batch_takes_whole_lines() {
    check(|from| {
        let length = from.u32();
        let cost = Geometry::data_cost(length);
        assert!(
            cost.is_multiple_of(LINE_BYTES) && cost >= length.into() && cost < u64::from(length) + LINE_BYTES
        );
    });
}

/// Checks that a slot that was written is read again, in its lap.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_slot_survives_the_ring() {
    check(|from| {
        let (slot, lap) = (slot(from), from.u32());
        let words = slot.encode(lap);
        assert_eq!(Slot::decode(words), Some(slot));
        assert_eq!(Slot::lap(words[0]), lap);
        assert_eq!(slot.is_inline(), slot.length_bytes as usize <= INLINE_BYTES);
    });
}

/// Checks that no words make the reader of slots panic, and that what it reads is what a producer writes as
/// the same words.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn any_words_are_a_possible_slot_or_none() {
    check(|from| {
        let words = match from.bool() {
            true => [from.u64() & 0xffff_ffff_0000_ff03, u64::from(from.u16()) << 32 | from.up_to(70_000)],
            false => [from.u64(), from.u64()],
        };
        let Some(slot) = Slot::decode(words) else { return };
        assert!((1..=MAX_BATCH_BYTES).contains(&slot.length_bytes));
        assert!((1..=slot.length_bytes).contains(&slot.segment_bytes));
        assert_eq!(slot.encode(Slot::lap(words[0])), words);
    });
}

/// Checks that bytes take as many words as they fill, and are unpacked unchanged, with zeros behind them.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(50))]
#[cfg_attr(not(kani), test)]
fn the_bytes_of_a_slot_survive_its_words() {
    check(|from| {
        let bytes: [u8; INLINE_BYTES] = from.bytes();
        let length = from.up_to(INLINE_BYTES as u64) as usize;
        let mut again = [0; INLINE_BYTES];
        let mut words = 0;
        for (to, word) in again.as_chunks_mut().0.iter_mut().zip(words_of(&bytes[..length])) {
            *to = word.to_le_bytes();
            words += 1;
        }
        assert_eq!(words, length.div_ceil(8));
        assert_eq!(again[..length], bytes[..length]);
        assert!(again[length..].iter().all(|byte| *byte == 0));
    });
}

/// Numbers of slots and of data lines of the small ring.
const SLOTS: u32 = 2;
const DATA_LINES: usize = 4;
const DATA_BYTES: usize = DATA_LINES * LINE_BYTES as usize;
const WORDS: usize = 2 * LINE_WORDS + SLOTS as usize * SLOT_WORDS;

/// A small ring in the memory of this process.
#[derive(Clone)]
struct Small(Rc<([AtomicU64; WORDS], RefCell<[u8; DATA_BYTES]>)>);

impl Small {
    fn new() -> Small {
        Small(Rc::new((std::array::from_fn(|_| AtomicU64::new(0)), RefCell::new([0; DATA_BYTES]))))
    }

    fn set(&self, word: usize, value: u64) {
        self.0.0[word].store(value, Ordering::Relaxed);
    }
}

impl RingMemory for Small {
    type AtomicWord = AtomicU64;

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0.0[index]
    }

    fn slot(&self, first: usize) -> Option<&[AtomicU64; SLOT_WORDS]> {
        self.0.0.get(first..)?.first_chunk()
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.1.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.1.borrow()[offset..offset + bytes.len()]);
    }
}

/// Checks that a producer writes only where it knows that there is room, and that an invalid value ends the
/// ring.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(66))]
#[cfg_attr(not(kani), test)]
fn a_producer_believes_only_what_can_be_true() {
    check(|from| {
        let Some(geometry) = Geometry::new(SLOTS, DATA_BYTES as u32) else { return };
        let memory = Small::new();
        let mut producer = Producer::new(memory.clone(), geometry);
        // Numbers of slots and of data bytes: those written, and those taken as far as the producer may
        // believe.
        let (mut written, mut taken) = ([0; 2], [0; 2]);
        for _ in 0..5 {
            let length = from.one_of(&[1_usize, INLINE_BYTES, INLINE_BYTES + 1, 256]);
            let lines = if length <= INLINE_BYTES { 0 } else { length.div_ceil(LINE_BYTES as usize) as u64 };
            let cost = [1, lines * LINE_BYTES];
            let (claim, waits) = ([from.up_to(6), from.up_to(6) * LINE_BYTES], from.up_to(1));
            memory.set(TAKEN_SLOTS, claim[0]);
            memory.set(TAKEN_BYTES, claim[1]);
            memory.set(WAITS, waits);
            let has_room = |taken: [u64; 2]| {
                written[0] + cost[0] - taken[0] <= u64::from(SLOTS)
                    && written[1] + cost[1] - taken[1] <= DATA_BYTES as u64
            };
            let looks = !has_room(taken);
            let is_possible = (0..2).all(|part| (taken[part]..=written[part]).contains(&claim[part]));
            if looks && is_possible {
                taken = claim;
            }
            let slot = Slot { kind: kind(from), path: 0, segment_bytes: 1, length_bytes: length as u32 };
            let pushed = producer.push(&slot, &[7; DATA_BYTES][..length]);
            let expected = match (looks && !is_possible, has_room(taken), waits) {
                (true, ..) => Err(Broken),
                (false, false, _) => Ok(RingPushOutcome::Full),
                (false, true, 0) => Ok(RingPushOutcome::Done),
                (false, true, _) => Ok(RingPushOutcome::DoneWake),
            };
            assert_eq!(pushed, expected);
            match expected {
                Ok(RingPushOutcome::Full) => {}
                Ok(_) => written = [written[0] + cost[0], written[1] + cost[1]],
                Err(Broken) => return,
            }
        }
    });
}

/// Checks that a consumer takes exactly the batches that a producer writes, in order and unchanged.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(258))]
#[cfg_attr(not(kani), test)]
fn batches_come_out_as_they_went_in() {
    check_all(|from| {
        let Some(geometry) = Geometry::new(SLOTS, DATA_BYTES as u32) else { return };
        let memory = Small::new();
        let mut producer = Producer::new(memory.clone(), geometry);
        let mut consumer = Consumer::new(memory, geometry);
        let mut buffer = [0; MAX_BATCH_BYTES as usize];
        let mut waiting = std::collections::VecDeque::new();
        for number in 0..7 {
            if from.bool() {
                let length = from.one_of(&[3_usize, 129, 256]);
                let slot = Slot {
                    kind: SlotKind::Sealed,
                    path: number,
                    segment_bytes: 1,
                    length_bytes: length as u32,
                };
                let lines = |length: usize| if length <= INLINE_BYTES { 0 } else { length.div_ceil(64) };
                let used: usize = waiting.iter().map(|(_, length)| lines(*length)).sum();
                let fits = waiting.len() < SLOTS as usize && used + lines(length) <= DATA_LINES;
                let pushed = producer.push(&slot, &[number ^ 0x5a; DATA_BYTES][..length]);
                assert_eq!(pushed, Ok(if fits { RingPushOutcome::Done } else { RingPushOutcome::Full }));
                if fits {
                    waiting.push_back((slot, length));
                }
            } else {
                assert_eq!(consumer.has_more(), !waiting.is_empty());
                let expected = waiting.pop_front();
                assert_eq!(consumer.take(&mut buffer), Ok(expected.map(|(slot, _)| slot)));
                if let Some((slot, length)) = expected {
                    assert!(buffer[..length].iter().all(|byte| *byte == slot.path ^ 0x5a));
                }
            }
        }
    });
}

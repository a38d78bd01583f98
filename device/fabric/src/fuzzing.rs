//! Entry points for fuzzing: records and messages that are read, written and read again, and rings whose
//! other side writes arbitrary bytes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::{Consumer, Geometry, MAX_BATCH_BYTES, Producer, RingMemory, SLOT_WORDS, Slot, SlotKind};
use super::same_host::{InboundRing, is_message};
use crate::members::member_index::MemberIndex;
use crate::members::record;

/// Reads bytes as a registry, as they are and with a correct checksum, then writes the registry and reads it
/// again. Returns `None` if the bytes are not a registry, and false if the second reading differs from the
/// first.
pub fn registry_record_is_stable(bytes: &[u8]) -> Option<bool> {
    let mut sealed = bytes.to_vec();
    if let Some((body, sum)) = sealed.split_last_chunk_mut::<8>() {
        *sum = record::checksum(body).to_le_bytes();
    }
    let members = record::decode(bytes).or_else(|| record::decode(&sealed))?;
    let written = record::encode(&members);
    Some(record::decode(&written).is_some_and(|again| record::encode(&again) == written))
}

/// Reads bytes as a message about a ring, with the same result as [`registry_record_is_stable`].
pub fn ring_message_is_stable(bytes: &[u8]) -> Option<bool> {
    is_message(bytes)
}

/// Size of the rings that are fuzzed: small, so that every part of them is reached.
const SIZE: Option<Geometry> = Geometry::new(8, 512);

/// Memory of this process, used in place of shared memory.
#[derive(Clone)]
struct Heap(Rc<(Vec<AtomicU64>, RefCell<Vec<u8>>)>);

impl RingMemory for Heap {
    type AtomicWord = AtomicU64;

    fn word(&self, index: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        self.0.0.get(index).unwrap_or(&NOTHING)
    }

    fn slot(&self, first: usize) -> Option<&[AtomicU64; SLOT_WORDS]> {
        self.0.0.get(first..)?.first_chunk()
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some(to) = self.0.1.borrow_mut().get_mut(offset..offset + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        if let Some(from) = self.0.1.borrow().get(offset..offset + bytes.len()) {
            bytes.copy_from_slice(from);
        }
    }
}

impl Heap {
    /// Returns a ring whose first bytes are these and whose rest is zero.
    fn of(bytes: &[u8], geometry: Geometry) -> Heap {
        let mut whole = bytes.to_vec();
        whole.resize(geometry.bytes(), 0);
        let (words, data) = whole.split_at(geometry.words() * size_of::<u64>());
        let words = words.as_chunks().0.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word)));
        Heap(Rc::new((words.collect(), RefCell::new(data.to_vec()))))
    }
}

/// Consumes a ring that consists of these bytes, then produces into a ring whose consumer counters come from
/// the bytes and consumes that. Returns the number of batches.
///
/// # Panics
/// Panics if more was taken than a ring holds, or if a batch differs from what was sent.
pub fn survive_ring(bytes: &[u8]) -> usize {
    let (Some(geometry), Some(member)) = (SIZE, MemberIndex::of_number(1)) else { return 0 };
    let mut buffer = Box::new([0; MAX_BATCH_BYTES as usize]);
    let mut inbound = InboundRing::new(member, 1, Consumer::new(Heap::of(bytes, geometry), geometry));
    let mut batches = 0;
    while let Ok(Some((received, _))) = inbound.take(&mut buffer) {
        assert!(!received.bytes.is_empty() && received.segment_bytes <= received.bytes.len());
        batches += 1;
        assert!(batches <= geometry.slots() as usize, "more than the slots hold");
    }
    let heap = Heap::of(&[], geometry);
    let mut producer = Producer::new(heap.clone(), geometry);
    let mut consumer = Consumer::new(heap.clone(), geometry);
    for claim in bytes.as_chunks::<4>().0 {
        let [word, taken, length, takes] = *claim;
        let length = usize::from(length) + 1;
        let slot = Slot { kind: SlotKind::Sealed, path: 0, segment_bytes: 1, length_bytes: length as u32 };
        if producer.push(&slot, &vec![taken; length]).is_err() {
            break;
        }
        if takes % 3 == 0 {
            // The first cache line of the header holds the consumer's counters.
            heap.word(usize::from(word) % 9).store(u64::from(taken), Ordering::Relaxed);
        } else if consumer.take(&mut buffer).is_err() {
            break;
        }
    }
    batches
}

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::geometry::{TAKEN_BYTES, TAKEN_SLOTS, WAITS};
use super::*;

/// Memory of this process instead of shared memory.
#[derive(Clone)]
struct Heap(Rc<(Vec<AtomicU64>, RefCell<Vec<u8>>)>);

impl Heap {
    fn new(geometry: Geometry) -> Heap {
        let words = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
        Heap(Rc::new((words, RefCell::new(vec![0; geometry.data_bytes() as usize]))))
    }

    fn set(&self, word: usize, value: u64) {
        self.0.0[word].store(value, Ordering::Relaxed);
    }
}

impl RingMemory for Heap {
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

type Buffer = Box<[u8; MAX_BATCH_BYTES as usize]>;

struct Ends {
    heap: Heap,
    geometry: Geometry,
    producer: Producer<Heap>,
    consumer: Consumer<Heap>,
    buffer: Buffer,
}

impl Ends {
    fn new(slots: u32, data_bytes: u32) -> Ends {
        let geometry = Geometry::new(slots, data_bytes).unwrap();
        let heap = Heap::new(geometry);
        Ends {
            producer: Producer::new(heap.clone(), geometry),
            consumer: Consumer::new(heap.clone(), geometry),
            heap,
            geometry,
            buffer: Box::new([0; MAX_BATCH_BYTES as usize]),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<RingPushOutcome, Broken> {
        self.producer.push(&batch(bytes.len() as u32), bytes)
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let slot = self.consumer.take(&mut self.buffer)?;
        Ok(slot.map(|slot| self.buffer[..slot.length_bytes as usize].to_vec()))
    }
}

fn batch(length_bytes: u32) -> Slot {
    Slot { kind: SlotKind::Unsealed, path: 3, segment_bytes: length_bytes, length_bytes }
}

#[test]
fn batches_come_as_they_went_round_and_round() {
    let mut ends = Ends::new(4, 256);
    let mut waiting = std::collections::VecDeque::new();
    let mut full = 0;
    for round in 0..2000_usize {
        let length = 1 + round * 37 % 200;
        let bytes: Vec<u8> = (0..length).map(|k| (round + k) as u8).collect();
        match ends.push(&bytes).unwrap() {
            RingPushOutcome::Full => full += 1,
            _ => waiting.push_back(bytes),
        }
        if round % 3 != 0 {
            assert_eq!(ends.take().unwrap(), waiting.pop_front());
        }
    }
    assert!(full > 100, "{full}");
    while let Some(bytes) = waiting.pop_front() {
        assert_eq!(ends.take().unwrap(), Some(bytes));
    }
    assert_eq!(ends.take().unwrap(), None);
}

#[test]
fn a_ring_is_full_when_its_slots_or_its_data_are() {
    let mut ends = Ends::new(4, 256);
    for _ in 0..4 {
        assert_eq!(ends.push(&[1; INLINE_BYTES]).unwrap(), RingPushOutcome::Done);
    }
    assert_eq!(ends.push(&[1]).unwrap(), RingPushOutcome::Full);
    ends.take().unwrap();
    assert_eq!(ends.push(&[2]).unwrap(), RingPushOutcome::Done);

    let mut ends = Ends::new(64, 512);
    assert_eq!(ends.push(&[1; 321]).unwrap(), RingPushOutcome::Done, "six lines");
    assert_eq!(ends.push(&[1; 129]).unwrap(), RingPushOutcome::Full);
    assert_eq!(ends.push(&[1; 128]).unwrap(), RingPushOutcome::Done);
    assert_eq!((ends.producer.has_room(1, 0), ends.producer.has_room(1, 1)), (Ok(true), Ok(false)));
    ends.take().unwrap();
    assert_eq!(ends.producer.has_room(1, 384), Ok(true));
}

#[test]
fn a_sleeper_is_woken_once_and_does_not_sleep_beside_a_batch() {
    let mut ends = Ends::new(4, 256);
    assert!(ends.consumer.prepare_sleep());
    assert_eq!(ends.push(b"a").unwrap(), RingPushOutcome::DoneWake);
    assert_eq!(ends.push(b"b").unwrap(), RingPushOutcome::Done);
    assert!(!ends.consumer.prepare_sleep());
    assert!(ends.consumer.has_more());
}

#[test]
fn a_producer_that_lies_is_found_out() {
    let first = |kind: u64, lap: u64| lap << 32 | 3 << 8 | kind;
    let second = |segment: u64, length: u64| segment << 32 | length;
    for (words, why) in [
        ([first(2, 3), second(4, 4)], "a lap that is not next"),
        ([first(2, u64::from(u32::MAX)), second(4, 4)], "the lap before the first"),
        ([first(0, 1), second(4, 4)], "no kind"),
        ([first(4, 1), second(4, 4)], "no kind"),
        ([first(2, 1) | 1 << 16, second(4, 4)], "bits that have no meaning"),
        ([first(2, 1), second(4, 0)], "an empty batch"),
        ([first(2, 1), second(0, 4)], "empty packets"),
        ([first(2, 1), second(5, 4)], "packets longer than the batch"),
        ([first(2, 1), second(4, 65_508)], "longer than any batch"),
        ([first(2, 1), second(4, 257)], "longer than the data"),
    ] {
        let mut ends = Ends::new(4, 256);
        let start = ends.geometry.slot_word(0);
        ends.heap.set(start + 1, words[1]);
        ends.heap.set(start, words[0]);
        assert_eq!(ends.take(), Err(Broken), "{why}");
    }
}

#[test]
fn a_consumer_that_lies_is_found_out() {
    for (word, value) in [(TAKEN_SLOTS, 5), (TAKEN_BYTES, 513), (TAKEN_SLOTS, u64::MAX)] {
        let mut ends = Ends::new(4, 512);
        for _ in 0..4 {
            ends.push(&[1; 128]).unwrap();
        }
        ends.heap.set(word, value);
        assert_eq!(ends.push(&[1]), Err(Broken), "{value} in {word}");
    }
    let mut ends = Ends::new(4, 512);
    for _ in 0..4 {
        ends.push(&[1; 128]).unwrap();
        ends.take().unwrap();
    }
    for _ in 0..4 {
        ends.push(&[1; 128]).unwrap();
    }
    ends.heap.set(TAKEN_SLOTS, 3);
    assert_eq!(ends.push(&[1]), Err(Broken), "less than before");
    // A word that is set to anything but 0 wakes a process that may be awake: once.
    let mut ends = Ends::new(4, 256);
    ends.heap.set(WAITS, 7);
    assert_eq!(
        (ends.push(&[1]), ends.push(&[1])),
        (Ok(RingPushOutcome::DoneWake), Ok(RingPushOutcome::Done))
    );
}

#[test]
fn no_geometry_is_too_large_or_odd() {
    for (slots, data_bytes) in [(0, 64), (3, 64), (4, 63), (4, 32), (1 << 17, 64), (4, 1 << 25)] {
        assert_eq!(Geometry::new(slots, data_bytes), None, "{slots} {data_bytes}");
    }
    let geometry = Geometry::new(8, 1024).unwrap();
    assert_eq!(geometry.bytes(), 128 + 8 * 128 + 1024);
}

//! A model of the ring's two sides.
//!
//! loom runs `producer.rs` and `consumer.rs` on its own atomics, in every order of the two threads (with a
//! bound on preemptions) and with every value that the memory model lets a load return. A batch that is seen
//! before its bytes shows as wrong bytes, and a wake-up that is lost as a deadlock.
//!
//! The model is a program of its own: loom's coroutines take the signals of memory faults for themselves,
//! which the tests of shared memory need.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use pumice_platform::word::AtomicWord;
use ring::*;

// Its own tests and its other functions are those of the library.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../src/ring/mod.rs"]
mod ring;

/// An atomic of loom.
struct ModelWord {
    number: AtomicU64,
    /// An exchange is a load and a store.
    is_torn: bool,
}

impl AtomicWord for ModelWord {
    fn new(value: u64) -> ModelWord {
        ModelWord { number: AtomicU64::new(value), is_torn: false }
    }

    fn load(&self, order: Ordering) -> u64 {
        self.number.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.number.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        if self.is_torn {
            let before = self.number.load(Ordering::Acquire);
            self.number.store(value, Ordering::Release);
            return before;
        }
        self.number.swap(value, order)
    }

    fn add(&self, value: u64, order: Ordering) {
        self.number.fetch_add(value, order);
    }

    fn sub(&self, value: u64, order: Ordering) {
        self.number.fetch_sub(value, order);
    }
}

/// What the model leaves out, to show that it finds the harm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The exchanges of a sleeper's word: each is a load and a store.
    Exchanges,
}

/// Words that both sides see. The data is one byte a cache line, in an atomic of its own: a batch of 113 to
/// 128 bytes is enough to use it.
struct SharedWords {
    words: Vec<ModelWord>,
    data: Vec<ModelWord>,
}

#[derive(Clone)]
struct ModelMemory(Arc<SharedWords>);

/// Two slots, and data for one batch: every second batch meets what the one before it left.
fn geometry() -> Geometry {
    Geometry::new(2, 128).unwrap()
}

impl ModelMemory {
    fn new(without: Without) -> ModelMemory {
        let is_torn = without == Without::Exchanges;
        let word = |_| ModelWord { is_torn, ..ModelWord::new(0) };
        let words = (0..geometry().words()).map(word).collect();
        ModelMemory(Arc::new(SharedWords { words, data: vec![AtomicWord::new(0)] }))
    }
}

impl RingMemory for ModelMemory {
    type AtomicWord = ModelWord;

    fn word(&self, index: usize) -> &ModelWord {
        &self.0.words[index]
    }

    fn slot(&self, first: usize) -> Option<&[ModelWord; SLOT_WORDS]> {
        self.0.words.get(first..)?.first_chunk()
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.0.data[offset / 64].store(u64::from(bytes[0]), Ordering::Relaxed);
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        bytes.fill(self.0.data[offset / 64].load(Ordering::Relaxed) as u8);
    }
}

/// The consumer's bell.
#[derive(Clone)]
struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    fn ring(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let mut rung = self.0.0.lock().unwrap();
        while !*rung {
            rung = self.0.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// The calls by which the two sides exchange batches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// Those for all batches.
    General,
    /// Those for batches that fit in their slots.
    Short,
}

fn push(calls: Calls, producer: &mut Producer<ModelMemory>, slot: &Slot, bytes: &[u8]) -> RingPushOutcome {
    let short = if calls == Calls::Short { producer.push_short(slot, bytes) } else { None };
    short.unwrap_or_else(|| producer.push(slot, bytes).unwrap())
}

fn take(calls: Calls, consumer: &mut Consumer<ModelMemory>, buffer: &mut Buffer) -> Option<Slot> {
    if calls == Calls::Short {
        let slot = consumer.peek_short(buffer.first_chunk_mut().unwrap()).unwrap()?;
        consumer.take_peeked();
        return Some(slot);
    }
    consumer.take(buffer).unwrap()
}

type Buffer = [u8; MAX_BATCH_BYTES as usize];

/// A producer that spins on a full ring, and a consumer that sleeps on an empty one.
fn exchange(without: Without, calls: Calls, batches: u8, length_bytes: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let memory = ModelMemory::new(without);
        let bell = Bell(Arc::new((Mutex::new(false), Condvar::new())));
        let mut producer = Producer::new(memory.clone(), geometry());
        let mut consumer = Consumer::new(memory, geometry());
        let other = bell.clone();
        let sender = thread::spawn(move || {
            for number in 1..=batches {
                let bytes = vec![number; length_bytes as usize];
                let slot =
                    Slot { kind: SlotKind::Unsealed, path: 0, segment_bytes: length_bytes, length_bytes };
                loop {
                    match push(calls, &mut producer, &slot, &bytes) {
                        RingPushOutcome::Done => break,
                        RingPushOutcome::DoneWake => {
                            other.ring();
                            break;
                        }
                        RingPushOutcome::Full => thread::yield_now(),
                    }
                }
            }
        });
        let mut buffer = Box::new([0; MAX_BATCH_BYTES as usize]);
        let mut expected = 1;
        while expected <= batches {
            match take(calls, &mut consumer, &mut buffer) {
                Some(slot) => {
                    assert_eq!(slot.length_bytes, length_bytes);
                    assert_eq!((buffer[0], buffer[length_bytes as usize - 1]), (expected, expected));
                    expected += 1;
                }
                None => {
                    if consumer.prepare_sleep() {
                        bell.wait();
                    }
                }
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn small_batches_arrive_whole_and_no_sleeper_is_forgotten() {
    exchange(Without::Nothing, Calls::General, 3, 8);
    exchange(Without::Nothing, Calls::Short, 3, 8);
}

#[test]
fn large_batches_arrive_whole_and_no_sleeper_is_forgotten() {
    exchange(Without::Nothing, Calls::General, 3, 128);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_exchanges_a_sleeper_is_forgotten() {
    // As many as there are slots: the producer must not spin while the consumer sleeps for ever.
    exchange(Without::Exchanges, Calls::General, 2, 8);
}

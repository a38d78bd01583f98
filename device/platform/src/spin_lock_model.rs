//! A model of the brief lock: loom runs its steps on its own atomics, in every order of the threads and with
//! every value that the memory model lets a load return. The lock guards words that are read and written
//! `Relaxed`, as if they were plain memory: only the lock orders them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::thread;
use word_model::{ModelWord, NONE, TORN, UNORDERED};

use crate::spin_lock::LockFlag;
use crate::word::AtomicWord;

#[allow(dead_code)] // of the model of the hand-over
#[path = "word_model.rs"]
mod word_model;

/// A completion queue of the model: what was added, what was taken, and whether the next one makes an event.
struct ModelQueue<const MISTAKE: u8> {
    taken: LockFlag<ModelWord<MISTAKE>>,
    added: ModelWord<NONE>,
    polled: ModelWord<NONE>,
    armed: ModelWord<NONE>,
    events: ModelWord<NONE>,
}

impl<const MISTAKE: u8> ModelQueue<MISTAKE> {
    fn new() -> Self {
        let word = || ModelWord::new(0);
        ModelQueue { taken: LockFlag::new(), added: word(), polled: word(), armed: word(), events: word() }
    }

    /// Runs `run` under the lock; `None`: another thread has the lock. Waiting would be the same later, and
    /// has no end in loom.
    fn locked<R>(&self, run: impl FnOnce() -> R) -> Option<R> {
        if !self.taken.take() {
            return None;
        }
        let result = run();
        self.taken.release();
        Some(result)
    }

    fn push(&self) -> Option<()> {
        self.locked(|| {
            add_one(&self.added);
            if self.armed.load(Ordering::Relaxed) == 1 {
                self.armed.store(0, Ordering::Relaxed);
                add_one(&self.events);
            }
        })
    }

    /// Takes the completions, and returns their number.
    fn poll(&self) -> Option<u64> {
        self.locked(|| {
            let count = self.added.load(Ordering::Relaxed) - self.polled.load(Ordering::Relaxed);
            self.polled.store(self.polled.load(Ordering::Relaxed) + count, Ordering::Relaxed);
            count
        })
    }

    fn arm(&self) -> Option<()> {
        self.locked(|| self.armed.store(1, Ordering::Relaxed))
    }
}

/// Adds one with a load and a store, not atomically.
fn add_one(word: &ModelWord<NONE>) {
    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Checks that a completion that comes while the program arms and polls is not missed: the program has the
/// completion, or an event announces it.
fn no_completion_is_missed<const MISTAKE: u8>() {
    loom::model(|| {
        let queue = Arc::new(ModelQueue::<MISTAKE>::new());
        let engine = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.push()
        });
        let (armed, polled) = (queue.arm(), queue.poll());
        let pushed = engine.join().unwrap();
        if let (Some(()), Some(polled), Some(())) = (armed, polled, pushed) {
            let is_notified = queue.events.load(Ordering::Relaxed) == 1;
            assert!(polled == 1 || is_notified, "neither a completion nor an event");
            assert_eq!(queue.poll(), Some(1 - polled), "each is polled once");
        }
    });
}

/// Checks that two threads that poll one queue poll each completion once.
fn each_is_polled_once<const MISTAKE: u8>() {
    loom::model(|| {
        let queue = Arc::new(ModelQueue::<MISTAKE>::new());
        let _ = queue.push();
        let other = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.poll()
        });
        let own = queue.poll().unwrap_or(0);
        let others = other.join().unwrap().unwrap_or(0);
        let rest = queue.poll().unwrap_or(0);
        assert_eq!(own + others + rest, 1, "each is polled once");
    });
}

#[test]
fn in_all_orders_each_completion_is_polled_once_or_told_of() {
    no_completion_is_missed::<NONE>();
    each_is_polled_once::<NONE>();
}

/// A planted mistake: two threads have the lock at a time.
#[test]
#[should_panic(expected = "each is polled once")]
fn the_model_finds_an_exchange_that_is_torn() {
    each_is_polled_once::<TORN>();
}

/// A planted mistake: the thread that takes the lock need not see what was done under it.
#[test]
#[should_panic(expected = "each is polled once")]
fn the_model_finds_a_release_that_orders_nothing() {
    each_is_polled_once::<UNORDERED>();
}

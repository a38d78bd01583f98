//! The yardsticks of one host: figures that two threads of this process reach through memory without any
//! protocol. A second process would have the same cache lines and the same futex.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::machine;
use crate::statistics::{LatencySamples, Percentiles};

const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = size_of::<u64>();
/// Largest number of messages that a stream has under way, and number of messages after which the receiver
/// reports its progress.
const STREAM_SLOTS: usize = 1024;
const MESSAGES_PER_CREDIT: u64 = 64;
/// Length in bytes of a copy, and of the memory from which and to which is copied: more than caches hold.
const COPY_BYTES: usize = 1 << 20;
const COPIED_MEMORY_BYTES: usize = 64 << 20;

/// The second thread, and the way in which both wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadPair {
    /// Core of the thread; `None` lets the scheduler choose.
    pub(crate) core: Option<usize>,
    yields: bool,
}

impl ThreadPair {
    /// Creates a pair with the second thread on this core.
    pub(crate) fn on(core: Option<usize>) -> ThreadPair {
        // On one core, spinning keeps the other thread from running.
        let yields = thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        ThreadPair { core, yields }
    }

    fn idle(self) {
        if self.yields { thread::yield_now() } else { spin_loop() }
    }

    /// Measures round trips of messages for which both threads spin, each message in as few cache lines as
    /// hold it.
    pub(crate) fn spin(
        self,
        size_bytes: usize,
        duration: Duration,
        times: &mut LatencySamples,
    ) -> Option<Percentiles> {
        let (there, back) = (MessageSlot::new(size_bytes), MessageSlot::new(size_bytes));
        let finished = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                machine::pin(self.core);
                for sequence in 1.. {
                    while !there.take(sequence) {
                        if finished.load(Ordering::Relaxed) {
                            return;
                        }
                        self.idle();
                    }
                    back.put(sequence);
                }
            });
            let mut sequence = 0;
            let percentiles = round_trips(duration, times, || {
                sequence += 1;
                there.put(sequence);
                while !back.take(sequence) {
                    self.idle();
                }
            });
            finished.store(true, Ordering::Relaxed);
            percentiles
        })
    }

    /// Measures round trips of two threads that sleep on a futex and wake each other.
    pub(crate) fn sleep(self, duration: Duration, times: &mut LatencySamples) -> Option<Percentiles> {
        let (there, back) = (FutexWaiter::default(), FutexWaiter::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                machine::pin(self.core);
                while there.sleep() {
                    back.wake(self);
                }
            });
            let percentiles = round_trips(duration, times, || {
                there.wake(self);
                back.sleep();
            });
            there.end();
            percentiles
        })
    }

    /// Measures messages per second of a stream for which both threads spin.
    pub(crate) fn stream(self, size_bytes: usize, duration: Duration) -> f64 {
        let slots: Vec<MessageSlot> = (0..STREAM_SLOTS).map(|_| MessageSlot::new(size_bytes)).collect();
        let (taken, finished) = (CacheLine::default(), AtomicBool::new(false));
        let taken = taken.first();
        thread::scope(|scope| {
            scope.spawn(|| {
                machine::pin(self.core);
                for (sequence, slot) in (1..).zip(slots.iter().cycle()) {
                    while !slot.take(sequence) {
                        if finished.load(Ordering::Relaxed) {
                            return;
                        }
                        self.idle();
                    }
                    if sequence % MESSAGES_PER_CREDIT == 0 {
                        taken.store(sequence, Ordering::Release);
                    }
                }
            });
            let start = Instant::now();
            for (sequence, slot) in (1_u64..).zip(slots.iter().cycle()) {
                if sequence % MESSAGES_PER_CREDIT == 1 {
                    // There must be room for as many as are sent before the next check.
                    let room = STREAM_SLOTS as u64 - MESSAGES_PER_CREDIT;
                    while sequence.saturating_sub(taken.load(Ordering::Acquire)) > room {
                        self.idle();
                    }
                    if start.elapsed() >= duration {
                        break;
                    }
                }
                slot.put(sequence);
            }
            let per_second = taken.load(Ordering::Acquire) as f64 / start.elapsed().as_secs_f64();
            finished.store(true, Ordering::Relaxed);
            per_second
        })
    }
}

/// Measures bytes per second of copies of 1 MiB, one after the other, from one large buffer to another.
pub(crate) fn copies(duration: Duration) -> f64 {
    // The bytes are not zero, because a page that was never written to would be copied from the cache.
    let from = vec![1_u8; COPIED_MEMORY_BYTES];
    let mut to = vec![2_u8; COPIED_MEMORY_BYTES];
    let start = Instant::now();
    let mut copied = 0;
    loop {
        for (to, from) in to.chunks_exact_mut(COPY_BYTES).zip(from.chunks_exact(COPY_BYTES)) {
            to.copy_from_slice(black_box(from));
            black_box(to);
            copied += COPY_BYTES;
            let elapsed = start.elapsed();
            if elapsed >= duration {
                return copied as f64 / elapsed.as_secs_f64();
            }
        }
    }
}

/// Calls `exchange` again and again for that time, at least once; returns the percentiles of its times.
fn round_trips(
    duration: Duration,
    times: &mut LatencySamples,
    mut exchange: impl FnMut(),
) -> Option<Percentiles> {
    times.clear();
    let start = Instant::now();
    let mut last = start;
    loop {
        exchange();
        let now = Instant::now();
        times.push(now - last);
        last = now;
        if now - start >= duration {
            return times.percentiles();
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine([AtomicU64; LINE_BYTES / WORD_BYTES]);

impl CacheLine {
    #[inline]
    fn first(&self) -> &AtomicU64 {
        let [first, ..] = &self.0;
        first
    }
}

/// Cache lines for one message at a time: a sequence number, then the payload.
#[derive(Debug)]
struct MessageSlot {
    first: CacheLine,
    more: Box<[CacheLine]>,
    payload_words: usize,
}

impl MessageSlot {
    fn new(size_bytes: usize) -> MessageSlot {
        let payload_words = size_bytes.div_ceil(WORD_BYTES).max(1);
        let lines = (payload_words + 1).div_ceil(LINE_BYTES / WORD_BYTES);
        MessageSlot {
            first: CacheLine::default(),
            more: (1..lines).map(|_| CacheLine::default()).collect(),
            payload_words,
        }
    }

    #[inline]
    fn each_payload_word(&self, mut with: impl FnMut(&AtomicU64)) {
        let [_, words @ ..] = &self.first.0;
        words.iter().take(self.payload_words).for_each(&mut with);
        let left = self.payload_words.saturating_sub(words.len());
        self.more.iter().flat_map(|line| &line.0).take(left).for_each(with);
    }

    #[inline]
    fn put(&self, sequence: u64) {
        self.each_payload_word(|word| word.store(sequence, Ordering::Relaxed));
        self.first.first().store(sequence, Ordering::Release);
    }

    /// Reads the message with this number; returns false if it is not there.
    #[inline]
    fn take(&self, sequence: u64) -> bool {
        if self.first.first().load(Ordering::Acquire) != sequence {
            return false;
        }
        let mut all = 0;
        self.each_payload_word(|word| all |= word.load(Ordering::Relaxed));
        black_box(all);
        true
    }
}

/// A futex on which one thread sleeps. The thread is woken only while it sleeps: two threads that find their
/// message before they sleep would measure a system call.
#[derive(Debug, Default)]
#[repr(align(64))]
struct FutexWaiter {
    /// Word of the futex: 0, or [`FINISHED`].
    futex_word: AtomicU32,
    is_woken: AtomicBool,
}

/// Value that says that the thread need not sleep any more.
const FINISHED: u32 = 1;

impl FutexWaiter {
    /// Wakes the thread once it sleeps.
    fn wake(&self, pair: ThreadPair) {
        self.is_woken.store(true, Ordering::SeqCst);
        // A wait may end by itself; the thread has noticed the call then.
        while futex::wake(&self.futex_word, futex::Flags::empty(), 1) != Ok(1)
            && self.is_woken.load(Ordering::SeqCst)
        {
            pair.idle();
        }
    }

    /// Sleeps until it is woken; returns false if the round is over.
    fn sleep(&self) -> bool {
        loop {
            // The wait fails for signals and when the round is over.
            let _ = futex::wait(&self.futex_word, futex::Flags::empty(), 0, None);
            if self.futex_word.load(Ordering::SeqCst) == FINISHED {
                return false;
            }
            if self.is_woken.swap(false, Ordering::SeqCst) {
                return true;
            }
        }
    }

    fn end(&self) {
        self.futex_word.store(FINISHED, Ordering::SeqCst);
        let _ = futex::wake(&self.futex_word, futex::Flags::empty(), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    #[test]
    fn a_message_is_whole_and_in_as_few_lines_as_hold_it() {
        for (size_bytes, lines) in [(1, 1), (8, 1), (56, 1), (57, 2), (4096, 65)] {
            let slot = MessageSlot::new(size_bytes);
            assert_eq!(1 + slot.more.len(), lines, "{size_bytes}");
            assert!(!slot.take(7));
            slot.put(7);
            assert!(slot.take(7) && !slot.take(8));
            let mut words = 0;
            slot.each_payload_word(|word| {
                assert_eq!(word.load(Ordering::Relaxed), 7);
                words += 1;
            });
            assert_eq!(words, size_bytes.div_ceil(WORD_BYTES));
        }
    }

    #[test]
    fn every_yardstick_gives_a_number_and_ends_its_thread() {
        let (pair, mut times) = (ThreadPair::on(None), LatencySamples::new());
        for size_bytes in [8, 500] {
            let spun = pair.spin(size_bytes, SHORT, &mut times).expect("one round trip at least");
            assert!(spun.p50 > 0.0 && spun.p99 >= spun.p50, "{spun:?}");
            assert!(pair.stream(size_bytes, SHORT).is_finite());
        }
        let slept = pair.sleep(SHORT, &mut times).expect("one round trip at least");
        assert!(slept.p50 > 0.0 && slept.p99 >= slept.p50, "{slept:?}");
        assert!(copies(SHORT) > 0.0);
    }
}

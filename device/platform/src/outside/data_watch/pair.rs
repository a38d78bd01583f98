//! Pairs of events: the first and the last word of a piece of memory.
//!
//! A pair belongs to the thread that has opened its events, until that thread ends. Beginning, ending and
//! taking happen one after the other, as their callers promise; the signal handler runs at any time, in the
//! pair's own thread.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::event::{self, WatchedWord};
use crate::outside::fork_generation::PerProcess;

/// Number of pairs of a process: two for each of 32 threads.
pub(super) const PAIRS: usize = 64;
/// Most return addresses that are recorded of an access.
pub const FRAMES: usize = 32;

/// The state of a pair that watches nothing, or whose recorded access was taken.
const IDLE: u32 = 0;
/// The state of a pair that watches its words.
const WATCHING: u32 = 1;
/// The state of a pair while the handler records an access.
const RECORDING: u32 = 2;
/// The state of a pair with a recorded access; it watches nothing any more.
const RECORDED: u32 = 3;

/// The upper half of each mark: "pumi".
const MARK: u64 = 0x7075_6d69 << 32;

/// A pair of events, and the access that they have seen.
#[derive(Debug)]
pub(super) struct EventPair {
    is_taken: AtomicBool,
    leader: AtomicI32,
    follower: AtomicI32,
    state: AtomicU32,
    /// Number of uses of the pair, which tells a watch from earlier ones.
    uses: AtomicU32,
    /// The bits of the words for which accesses by the C library count.
    by_library: AtomicU32,
    word: AtomicU32,
    count: AtomicU32,
    frames: [AtomicU64; FRAMES],
}

impl EventPair {
    const fn new() -> EventPair {
        EventPair {
            is_taken: AtomicBool::new(false),
            leader: AtomicI32::new(-1),
            follower: AtomicI32::new(-1),
            state: AtomicU32::new(IDLE),
            uses: AtomicU32::new(0),
            by_library: AtomicU32::new(0),
            word: AtomicU32::new(0),
            count: AtomicU32::new(0),
            frames: [const { AtomicU64::new(0) }; FRAMES],
        }
    }

    fn events(&self) -> [RawFd; 2] {
        [self.leader.load(Ordering::Acquire), self.follower.load(Ordering::Acquire)]
    }

    fn close(&self) {
        for event in [&self.follower, &self.leader] {
            let event = event.swap(-1, Ordering::AcqRel);
            if event >= 0 {
                event::close(event);
            }
        }
    }

    /// Reports whether the pair may be used for another watch.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Acquire) == IDLE
    }

    /// Watches one or two words of the calling thread, which owns the pair. Returns false if its events are
    /// gone.
    fn begin(&self, index: usize, words: &[WatchedWord]) -> bool {
        let [leader, follower] = self.events();
        let [first, rest @ ..] = words else { return false };
        let counts = words.iter().zip([1, 2]).filter(|(word, _)| word.by_library);
        self.by_library.store(counts.map(|(_, bit)| bit).sum(), Ordering::Relaxed);
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.state.store(WATCHING, Ordering::Release);
        // The follower begins to watch before its leader does.
        let is_well = rest.first().is_none_or(|last| event::watch(follower, *last, mark(index, 1)))
            && event::watch(leader, *first, mark(index, 0));
        if !is_well {
            self.end();
        }
        is_well
    }

    fn end(&self) {
        // The handler that records an access stops the events itself, and forgets its record.
        if self.state.swap(IDLE, Ordering::AcqRel) == WATCHING {
            event::stop(self.leader.load(Ordering::Acquire));
        }
    }

    /// Records an access to the word of this number, which `look` examines. It is called by the signal
    /// handler.
    pub(super) fn note(&self, word: u32, look: impl FnOnce(bool, &mut [u64; FRAMES]) -> usize) -> bool {
        if self.state.load(Ordering::Acquire) != WATCHING {
            // The watch has ended meanwhile.
            event::stop(self.leader.load(Ordering::Acquire));
            return false;
        }
        let mut frames = [0; FRAMES];
        let count = look(self.by_library.load(Ordering::Relaxed) >> word & 1 == 1, &mut frames);
        let begins = || self.state.compare_exchange(WATCHING, RECORDING, Ordering::AcqRel, Ordering::Acquire);
        if count == 0 || begins().is_err() {
            return false;
        }
        event::stop(self.leader.load(Ordering::Acquire));
        self.frames.iter().zip(frames).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
        self.count.store(count as u32, Ordering::Relaxed);
        self.word.store(word, Ordering::Relaxed);
        self.state.compare_exchange(RECORDING, RECORDED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Returns the mark of the signals of a pair's event.
fn mark(index: usize, word: u64) -> u64 {
    MARK | (index as u64) << 1 | word
}

/// All pairs of a process.
#[derive(Debug)]
pub(super) struct Pairs {
    list: [EventPair; PAIRS],
    /// True if there may be a recorded access.
    has_record: AtomicBool,
}

/// The pairs of this process. A child closes its copies of the descriptors: the events are those of its
/// parent's threads.
static PAIRS_OF_PROCESS: PerProcess<Pairs> = PerProcess::new(|before| {
    before.iter().flat_map(|parents| &parents.list).for_each(EventPair::close);
    Pairs { list: [const { EventPair::new() }; PAIRS], has_record: AtomicBool::new(false) }
});

impl Pairs {
    pub(super) fn own() -> &'static Pairs {
        &PAIRS_OF_PROCESS
    }

    /// Returns the pairs of this process, if it has any.
    pub(super) fn get_if_created() -> Option<&'static Pairs> {
        PAIRS_OF_PROCESS.get_if_created()
    }

    /// Closes what this process, a child, has inherited of its parent's pairs.
    pub(super) fn forked() {
        PAIRS_OF_PROCESS.inherited().flat_map(|parents| &parents.list).for_each(EventPair::close);
    }

    pub(super) fn at(&self, index: usize) -> Option<&EventPair> {
        self.list.get(index)
    }

    /// Returns the pair of a signal with this mark, and the number of the word.
    pub(super) fn marked(&self, marked: u64) -> Option<(&EventPair, u32)> {
        let index = usize::try_from((marked ^ MARK) >> 1).ok()?;
        Some((self.list.get(index)?, (marked & 1) as u32))
    }

    /// Opens a pair for the calling thread, and returns its index. `None`: all are taken, or the kernel
    /// refuses it.
    pub(super) fn open(&self) -> Option<usize> {
        let is_free = |pair: &EventPair| pair.is_idle() && !pair.is_taken.swap(true, Ordering::Acquire);
        let (index, pair) = self.list.iter().enumerate().find(|(_, pair)| is_free(pair))?;
        let leader = event::open(mark(index, 0), -1);
        let follower = leader.and_then(|leader| event::open(mark(index, 1), leader));
        pair.leader.store(leader.unwrap_or(-1), Ordering::Release);
        pair.follower.store(follower.unwrap_or(-1), Ordering::Release);
        if follower.is_none() {
            self.close(index);
            return None;
        }
        Some(index)
    }

    /// Closes a pair whose thread ends. A recorded access can still be taken.
    pub(super) fn close(&self, index: usize) {
        let Some(pair) = self.list.get(index) else { return };
        let _ = pair.state.compare_exchange(WATCHING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        pair.close();
        pair.is_taken.store(false, Ordering::Release);
    }

    /// Watches words by an idle pair of the calling thread, and returns the ID of the watch. `None`: its
    /// events are gone, and the pair is of no use any more.
    pub(super) fn begin(&self, index: usize, words: &[WatchedWord]) -> Option<u64> {
        let pair = self.list.get(index)?;
        let begins = pair.begin(index, words);
        begins.then(|| u64::from(pair.uses.load(Ordering::Relaxed)) << 8 | index as u64)
    }

    /// Returns the pair of a watch, if it was not used for another since.
    fn of(&self, watch: u64) -> Option<&EventPair> {
        let pair = self.list.get((watch & 0xff) as usize)?;
        (u64::from(pair.uses.load(Ordering::Relaxed)) == watch >> 8).then_some(pair)
    }

    pub(super) fn end(&self, watch: u64) {
        if let Some(pair) = self.of(watch) {
            pair.end();
        }
    }

    /// Notes that an access is recorded.
    pub(super) fn has_new_record(&self) {
        self.has_record.store(true, Ordering::Release);
    }

    /// Takes a recorded access: its watch and its word. Its return addresses replace those of `frames`.
    pub(super) fn take(&self, frames: &mut Vec<u64>) -> Option<(u64, usize)> {
        if !self.has_record.load(Ordering::Relaxed) {
            return None;
        }
        self.has_record.store(false, Ordering::SeqCst);
        let is_noted = |pair: &EventPair| pair.state.load(Ordering::SeqCst) == RECORDED;
        let (index, pair) = self.list.iter().enumerate().find(|(_, pair)| is_noted(pair))?;
        // There may be further recorded accesses.
        self.has_new_record();
        let count = pair.count.load(Ordering::Relaxed) as usize;
        frames.clear();
        frames.extend(pair.frames.iter().take(count).map(|frame| frame.load(Ordering::Relaxed)));
        let watch = u64::from(pair.uses.load(Ordering::Relaxed)) << 8 | index as u64;
        let word = pair.word.load(Ordering::Relaxed) as usize;
        pair.state.store(IDLE, Ordering::Release);
        Some((watch, word))
    }
}

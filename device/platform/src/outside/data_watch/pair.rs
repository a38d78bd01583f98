//! Data breakpoints of the processor, as events of perf_event_open(2), and pairs of them.
//!
//! An event belongs to the thread that opens it. After an access of that thread the kernel sends it SIGTRAP,
//! before the next instruction. Accesses of the kernel do not count, so neither do those of system calls.
//!
//! A pair belongs to the thread that has opened its events, until that thread ends. Beginning, ending and
//! taking happen one after the other, as their callers promise; the signal handler runs at any time, in the
//! pair's own thread.

use std::ffi::{c_int, c_ulong};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::outside::fork_generation::PerProcess;

/// A word of the program's memory that can be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedWord {
    /// Address of the first byte, a multiple of `bytes`.
    pub address: u64,
    /// Length in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// True if accesses by instructions of the C library count. If not, the C library may touch the word
    /// while it reads what lies beside it: its functions for strings read more than the string.
    pub by_library: bool,
}

/// The kernel's `struct perf_event_attr`, as Linux 5.13 has it.
#[repr(C)]
struct PerfEventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_kind: u32,
    address: u64,
    bytes: u64,
    unused: [u64; 6],
    mark: u64,
}

const _: () = assert!(size_of::<PerfEventAttributes>() == 128, "PERF_ATTR_SIZE_VER7");

/// `PERF_TYPE_BREAKPOINT`
const OF_BREAKPOINT: u32 = 5;
/// `HW_BREAKPOINT_RW`: an x86-64 cannot watch reads alone.
const READ_AND_WRITE: u32 = 3;
/// Bits of `flags`.
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const SEND_SIGTRAP: u64 = 1 << 37;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: c_ulong = 8;
/// `PERF_EVENT_IOC_DISABLE`, for an event and those of its group, and `PERF_EVENT_IOC_MODIFY_ATTRIBUTES`.
const DISABLE: c_ulong = 0x2401;
const OF_GROUP: c_ulong = 1;
const MODIFY: c_ulong = 0x4008_240b;

fn attributes(word: WatchedWord, mark: u64, flags: u64) -> PerfEventAttributes {
    PerfEventAttributes {
        kind: OF_BREAKPOINT,
        size: size_of::<PerfEventAttributes>() as u32,
        config: 0,
        sample_period: 1,
        sample_type: 0,
        read_format: 0,
        flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | REMOVE_ON_EXEC | SEND_SIGTRAP | flags,
        wakeup: 0,
        breakpoint_kind: READ_AND_WRITE,
        address: word.address,
        bytes: word.bytes.into(),
        unused: [0; 6],
        mark,
    }
}

/// Opens an event of the calling thread that watches nothing yet. Its signals have this mark. `leader`: the
/// event whose group it joins; -1: a new group. Returns `None` if the kernel refuses it.
pub(super) fn open(mark: u64, leader: RawFd) -> Option<RawFd> {
    // The address does not matter yet; any one of the program is accepted.
    let here = 0_u64;
    let word = WatchedWord { address: (&raw const here).addr() as u64, bytes: 8, by_library: false };
    let attributes = attributes(word, mark, DISABLED);
    let (this_thread, any_processor): (libc::pid_t, c_int) = (0, -1);
    // SAFETY: a structure of this frame, of the size that it names, and numbers.
    let opened = unsafe {
        let number = libc::SYS_perf_event_open;
        libc::syscall(number, &raw const attributes, this_thread, any_processor, leader, CLOSE_ON_EXEC)
    };
    RawFd::try_from(opened).ok().filter(|event| *event >= 0)
}

/// Makes an event watch this word. Returns false if the descriptor is no such event any more.
pub(super) fn watch(event: RawFd, word: WatchedWord, mark: u64) -> bool {
    let attributes = attributes(word, mark, 0);
    // SAFETY: the call reads the structure of this frame. On a descriptor of another kind, which the program
    // may have opened in its place, the kernel refuses it.
    unsafe { libc::ioctl(event, MODIFY as _, &raw const attributes) == 0 }
}

/// Stops all events of this one's group. It may be called in signal handlers.
pub(super) fn stop(leader: RawFd) {
    // SAFETY: as above; the argument is a number.
    unsafe { libc::ioctl(leader, DISABLE as _, OF_GROUP) };
}

/// Closes an event.
pub(super) fn close(event: RawFd) {
    // SAFETY: what `open` has returned, which its owner gives up.
    unsafe { libc::close(event) };
}

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
                close(event);
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
        let is_well = rest.first().is_none_or(|last| watch(follower, *last, mark(index, 1)))
            && watch(leader, *first, mark(index, 0));
        if !is_well {
            self.end();
        }
        is_well
    }

    fn end(&self) {
        // The handler that records an access stops the events itself, and forgets its record.
        if self.state.swap(IDLE, Ordering::AcqRel) == WATCHING {
            stop(self.leader.load(Ordering::Acquire));
        }
    }

    /// Records an access to the word of this number, which `look` examines. It is called by the signal
    /// handler.
    pub(super) fn note(&self, word: u32, look: impl FnOnce(bool, &mut [u64; FRAMES]) -> usize) -> bool {
        if self.state.load(Ordering::Acquire) != WATCHING {
            // The watch has ended meanwhile.
            stop(self.leader.load(Ordering::Acquire));
            return false;
        }
        let mut frames = [0; FRAMES];
        let count = look(self.by_library.load(Ordering::Relaxed) >> word & 1 == 1, &mut frames);
        let begins = || self.state.compare_exchange(WATCHING, RECORDING, Ordering::AcqRel, Ordering::Acquire);
        if count == 0 || begins().is_err() {
            return false;
        }
        stop(self.leader.load(Ordering::Acquire));
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
        let leader = open(mark(index, 0), -1);
        let follower = leader.and_then(|leader| open(mark(index, 1), leader));
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

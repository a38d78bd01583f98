//! Functions by which checks reach into the process.

use pumice_platform::outside::data_watch::WatchedWord;

/// A function that copies ranges (process address, bytes) one behind the other. It returns false if one of
/// them is not mapped. At most 64 ranges are passed at once.
pub type ReadMemory = fn(&[(u64, usize)], &mut [u8]) -> bool;

/// A function that fills ranges (process address, bytes) with a pattern. It returns false if one of them is
/// not mapped for writing.
pub type FillMemory = fn(&[(u64, usize)]) -> bool;

/// A function that is notified of the bounds of all memory of posted requests: the first address, and the one
/// behind the last.
pub type BoundsCallback = fn(u64, u64);

/// A function that returns the stack of the calling thread: its first byte, and the first one behind it.
pub type OwnStack = fn() -> (u64, u64);

/// A function that returns how often the calling thread has waited in the operating system since it began.
pub type WaitCounter = fn() -> u64;

/// A function that returns how often the calling thread has slept for a time that it named, as by usleep(3).
pub type SleepCounter = fn() -> u64;

/// Functions that watch words of memory for accesses of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Watchpoints {
    /// Begins to watch one or two words, and returns the number of the watch; `None` if they are not watched.
    pub begin: fn(&[WatchedWord]) -> Option<u64>,
    /// Ends a watch.
    pub end: fn(u64),
    /// Takes an access, which has ended its watch: returns the watch, and which of its words it was. Return
    /// addresses of the access replace those of the list, the innermost first.
    pub take: fn(&mut Vec<u64>) -> Option<(u64, usize)>,
}

/// The functions that the owner of a checker provides. Without one of them, mistakes that need it are not
/// found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Callbacks {
    pub(super) read: Option<ReadMemory>,
    /// Function like `read`, for memory that is known to be mapped.
    pub(super) read_at_once: Option<ReadMemory>,
    pub(super) own_stack: Option<OwnStack>,
    pub(super) fill: Option<FillMemory>,
    pub(super) watch: Option<BoundsCallback>,
    pub(super) switches: Option<WaitCounter>,
    pub(super) sleeps: Option<SleepCounter>,
    pub(super) watchpoints: Option<Watchpoints>,
}

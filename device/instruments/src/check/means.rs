//! How checks reach into the process.

use pumice_ground::outside::data_watch::Word;

/// Copies ranges (process address, bytes) one behind the other; false: one of them is not mapped. At most 64
/// ranges are asked for at once.
pub type Read = fn(&[(u64, usize)], &mut [u8]) -> bool;

/// Fills ranges (process address, bytes) with a pattern; false: one of them is not mapped for writing.
pub type Fill = fn(&[(u64, usize)]) -> bool;

/// Is told that all memory of posted requests lies from the one address up to before the other.
pub type Watch = fn(u64, u64);

/// The stack of the calling thread: its first byte, and the first one behind it.
pub type OwnStack = fn() -> (u64, u64);

/// How often the calling thread has waited in the operating system since it began.
pub type Switches = fn() -> u64;

/// Watches words of memory for accesses of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Watchpoints {
    /// Begins to watch one or two words: what names the watch. `None`: they are not watched.
    pub begin: fn(&[Word]) -> Option<u64>,
    /// Ends a watch.
    pub end: fn(u64),
    /// Takes an access, which has ended its watch: the watch, and which of its words it was. Return addresses
    /// of the access replace those of the list, the innermost first.
    pub take: fn(&mut Vec<u64>) -> Option<(u64, usize)>,
}

/// What the owner of a checker lends it. Without one of them, what needs it is not found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Means {
    pub(super) read: Option<Read>,
    /// As `read`, of memory that is known to be mapped.
    pub(super) read_at_once: Option<Read>,
    pub(super) own_stack: Option<OwnStack>,
    pub(super) fill: Option<Fill>,
    pub(super) watch: Option<Watch>,
    pub(super) switches: Option<Switches>,
    pub(super) watchpoints: Option<Watchpoints>,
}

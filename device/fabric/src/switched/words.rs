//! The words of a port of a switch, which processes share. Any process of the user may have written anything
//! to them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of words of each port: its counters, and room for more.
pub const PORT_WORDS: usize = 16;

/// The meaning of each word of a port. Times are those of the host's monotonic clock, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortWord {
    /// Time at which the last bit of all that joined the queue has left.
    BusyUntil = 0,
    /// Time at which the last packet came.
    LastArrival = 1,
    /// Number of packets that joined the queue.
    Packets = 2,
    /// Number of their bytes.
    Bytes = 3,
    Marked = 4,
    /// Number of packets that found no room.
    Dropped = 5,
    /// Number of times that the sender in front of this queue's link was stopped.
    Pauses = 6,
    /// Length of the longest queue, in bytes.
    MaxBytes = 7,
    /// Time before which no packet joins the queue, because it was too long for a switch that pauses its
    /// senders.
    ClosedUntil = 8,
}

/// Memory with [`PORT_WORDS`] words for each port of a topology, in the order of its links.
pub trait SwitchWords: Send + Sync {
    /// Returns the words. A port that has none there counts nothing and is never busy.
    fn words(&self) -> &[AtomicU64];
}

impl SwitchWords for Vec<AtomicU64> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Word that is used for a port without words.
static SCRATCH_WORD: AtomicU64 = AtomicU64::new(0);

/// Returns a word of a port. The words do not depend on each other, so `Relaxed` is enough for all of them.
pub(super) fn word(words: &[AtomicU64], port: usize, which: PortWord) -> &AtomicU64 {
    words.get(port.saturating_mul(PORT_WORDS).saturating_add(which as usize)).unwrap_or(&SCRATCH_WORD)
}

/// Returns the value of a word.
pub(super) fn load_word(words: &[AtomicU64], port: usize, which: PortWord) -> u64 {
    word(words, port, which).load(Ordering::Relaxed)
}

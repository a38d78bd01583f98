//! The words of a port of a switch, which processes share. Any process of the user may have written anything.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of each port: what it counts, and room for more.
pub const PORT_WORDS: usize = 16;

/// What each word of a port says. Times are those of the host's monotonic clock, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// The last bit of all that joined the queue has left.
    BusyUntil = 0,
    /// When the last packet came.
    LastCame = 1,
    /// Packets that joined the queue.
    Packets = 2,
    /// Their bytes.
    Bytes = 3,
    Marked = 4,
    /// Packets that found no room.
    Dropped = 5,
    /// Times that the sender in front of this queue's link was stopped.
    Pauses = 6,
    /// The longest queue, in bytes.
    MostBytes = 7,
    /// No packet joins the queue before: it was too long for a switch that pauses its senders.
    ClosedUntil = 8,
}

/// Memory with [`PORT_WORDS`] words for each port of a topology, in the order of its links.
pub trait SwitchWords: Send + Sync {
    /// The words. A port that has none there counts nothing and is never busy.
    fn words(&self) -> &[AtomicU64];
}

impl SwitchWords for Vec<AtomicU64> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// What stands in for the words of a port that has none.
static NOWHERE: AtomicU64 = AtomicU64::new(0);

/// A word of a port. Each is told alone: `Relaxed` is enough for all of them.
pub(super) fn word(words: &[AtomicU64], port: usize, which: Word) -> &AtomicU64 {
    words.get(port.saturating_mul(PORT_WORDS).saturating_add(which as usize)).unwrap_or(&NOWHERE)
}

/// What a word says.
pub(super) fn said(words: &[AtomicU64], port: usize, which: Word) -> u64 {
    word(words, port, which).load(Ordering::Relaxed)
}

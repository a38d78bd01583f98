//! The limit on what a timeline stores.

/// Maximum number of packets, messages, receives, moments and ways in a timeline, of all traces together:
/// some 2 GB.
const MAX_ITEMS: u64 = 24 << 20;
/// Maximum number of queue pairs in a timeline.
const MAX_QUEUE_PAIRS: u64 = 1 << 18;

/// The remaining capacity of a timeline.
#[derive(Debug)]
pub(super) struct TimelineBudget {
    items: u64,
    queue_pairs: u64,
    /// Number of records that are not stored.
    pub(super) left_out: u64,
}

impl Default for TimelineBudget {
    fn default() -> TimelineBudget {
        TimelineBudget { items: MAX_ITEMS, queue_pairs: MAX_QUEUE_PAIRS, left_out: 0 }
    }
}

impl TimelineBudget {
    /// Takes room for one more item, and returns whether there was any.
    pub(super) fn take(&mut self) -> bool {
        if self.items == 0 {
            self.left_out += 1;
            return false;
        }
        self.items -= 1;
        true
    }

    /// Takes room for one more queue pair, and returns whether there was any.
    pub(super) fn take_queue_pair(&mut self) -> bool {
        if self.queue_pairs == 0 {
            self.left_out += 1;
            return false;
        }
        self.queue_pairs -= 1;
        true
    }
}

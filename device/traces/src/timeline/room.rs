//! How much a timeline keeps.

/// Packets, messages, receives, moments and ways that a timeline holds at most, of all traces: some 2 GB.
const MAX_ITEMS: u64 = 24 << 20;
/// Queue pairs that it holds at most.
const MAX_QUEUE_PAIRS: u64 = 1 << 18;

/// How much more may be kept.
#[derive(Debug)]
pub(super) struct Room {
    items: u64,
    queue_pairs: u64,
    /// Records of which nothing is kept.
    pub(super) left_out: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { items: MAX_ITEMS, queue_pairs: MAX_QUEUE_PAIRS, left_out: 0 }
    }
}

impl Room {
    /// Whether one more thing may be kept.
    pub(super) fn take(&mut self) -> bool {
        if self.items == 0 {
            self.left_out += 1;
            return false;
        }
        self.items -= 1;
        true
    }

    /// Whether one more queue pair may be kept.
    pub(super) fn take_queue_pair(&mut self) -> bool {
        if self.queue_pairs == 0 {
            self.left_out += 1;
            return false;
        }
        self.queue_pairs -= 1;
        true
    }
}

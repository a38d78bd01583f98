//! The data of the screen.

use crate::observe::{ProcessRates, Snapshot, rates};

/// A snapshot of the processes, and their rates since the snapshot before.
#[derive(Debug, Clone, Default)]
pub(super) struct TopSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) rates: Vec<ProcessRates>,
}

impl TopSnapshot {
    /// Combines a snapshot with the rates since the one before.
    pub(super) fn after(before: &Snapshot, now: Snapshot, elapsed_ns: u64) -> TopSnapshot {
        TopSnapshot { rates: rates(before, &now, elapsed_ns), snapshot: now }
    }
}

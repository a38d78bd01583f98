//! What the screen is made of.

use crate::observe::{ProcessRates, Snapshot, rates};

/// A look at the processes, and their rates since the look before.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    pub(super) snapshot: Snapshot,
    pub(super) rates: Vec<ProcessRates>,
}

impl Look {
    /// What is now, compared with what was.
    pub(super) fn after(before: &Snapshot, now: Snapshot, elapsed_ns: u64) -> Look {
        Look { rates: rates(before, &now, elapsed_ns), snapshot: now }
    }
}

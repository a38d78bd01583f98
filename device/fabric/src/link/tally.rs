//! The counters of a link, and the limit of what it holds.

use std::sync::Arc;

use pumice_model::counters::Counters;
use pumice_transport::host::Counter;

/// Largest number of bytes that are held in each direction, those on their way included. Beyond it, an
/// arriving packet is lost, and the device waits with one that leaves.
pub(crate) const MAX_HELD_BYTES: usize = 64 << 20;
/// The counters of a link.
#[derive(Default)]
pub(crate) struct DropTally(Option<Arc<Counters>>);

impl DropTally {
    /// Returns a tally in the counters of the device behind the link.
    pub(crate) fn of(counters: &Arc<Counters>) -> DropTally {
        DropTally(Some(Arc::clone(counters)))
    }

    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        if let Some(counters) = self.0.as_deref().filter(|_| amount > 0) {
            counters.add(counter, amount);
        }
    }
}

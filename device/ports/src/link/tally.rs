//! Where a link counts, and what it holds at most.

use std::sync::Arc;

use pumice_events::counters::Counters;
use pumice_transport::host::Counter;

/// Bytes that are held in each direction at most, those on their way included. Of what is beyond, an arriving
/// packet is lost, and the device waits with one that leaves.
pub(crate) const MAX_HELD_BYTES: usize = 64 << 20;
/// Where a link counts.
#[derive(Default)]
pub(crate) struct Tally(Option<Arc<Counters>>);

impl Tally {
    /// The counters of the device behind the link.
    pub(crate) fn of(counters: &Arc<Counters>) -> Tally {
        Tally(Some(Arc::clone(counters)))
    }

    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        if let Some(counters) = self.0.as_deref().filter(|_| amount > 0) {
            counters.add(counter, amount);
        }
    }
}

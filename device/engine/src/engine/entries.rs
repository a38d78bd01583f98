//! The table of queue pairs as shared XRC targets see it.

use pumice_fabric::xrc::{self, TargetSharing};
use pumice_transport::qp::QueuePair;
use pumice_transport::wire::Qpn;

use super::budget::Budget;
use super::queue_pairs::{QpEntry, QueuePairs};

/// The table of queue pairs, and the budget that a removed one has a share of.
pub(crate) struct Entries<'a> {
    pub(crate) queue_pairs: &'a mut QueuePairs,
    pub(crate) budget: &'a mut Budget,
}

impl xrc::Entries for Entries<'_> {
    fn entry(&mut self, qpn: Qpn) -> Option<(u32, &mut QueuePair, &mut TargetSharing)> {
        let (index, entry) = self.queue_pairs.by_number(qpn)?;
        Some((index, &mut entry.qp, &mut entry.sharing))
    }

    fn insert(&mut self, qp: QueuePair, sharing: TargetSharing) -> u32 {
        self.queue_pairs.insert_foreign(QpEntry::new(qp, sharing))
    }

    fn remove(&mut self, index: u32) {
        if let Some(mut entry) = self.queue_pairs.remove(index) {
            entry.release(self.budget);
        }
    }
}

//! Stores of WRITEs that are done after their acknowledgement has left, as regions with relaxed ordering
//! allow. Only a shuffled schedule makes such stores.
//!
//! Each store waits for a drawn time of its own. It is done earlier if something is about to show its data to
//! the program, as the table of promises says ([`StoreOrder::guarantees`]).

use pumice_transport::types::{SenderOrder, StoreEvidence, StoreOrder};
use pumice_transport::wire::Qpn;

use super::stored::{MemoryRange, Target, overlap};

/// Most bytes that may be deferred; beyond that a store is done at once.
const MAX_BYTES: usize = 1 << 20;
/// Most stores that may be deferred.
const MAX_STORES: usize = 1024;

/// A deferred store.
#[derive(Debug)]
pub(crate) struct DeferredStore {
    /// The queue pair that received the WRITE.
    pub(crate) qpn: Qpn,
    pub(crate) order: StoreOrder,
    pub(crate) target: Target<'static>,
    pub(crate) ranges: Vec<MemoryRange>,
    pub(crate) data: Vec<u8>,
    pub(crate) delay_ns: u64,
}

#[derive(Debug)]
struct TimedStore {
    store: DeferredStore,
    /// True if the sender may know that the WRITE has completed.
    is_acknowledged: bool,
    /// The time at which the store is due, in ns; set at the end of the turn in which it came.
    due_ns: Option<u64>,
}

/// The deferred stores, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct DeferredStores {
    waiting: Vec<TimedStore>,
    bytes: usize,
    due_ns: Option<u64>,
    /// True if stores came for which no due time was set, and for which no acknowledgement has left.
    some_untimed: bool,
    some_unacknowledged: bool,
}

impl DeferredStores {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES || self.waiting.len() >= MAX_STORES
    }

    pub(crate) fn push(&mut self, store: DeferredStore) {
        self.bytes += store.data.len();
        (self.some_untimed, self.some_unacknowledged) = (true, true);
        self.waiting.push(TimedStore { store, is_acknowledged: false, due_ns: None });
    }

    /// Returns when the first store is due, in ns.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Sets the due times of the stores that have come since the last call.
    pub(crate) fn time(&mut self, now_ns: u64) {
        if !std::mem::take(&mut self.some_untimed) {
            return;
        }
        for TimedStore { store, due_ns, .. } in &mut self.waiting {
            due_ns.get_or_insert(now_ns.saturating_add(store.delay_ns));
        }
        self.note_due();
    }

    /// Marks all stores as acknowledged: senders may learn now that their WRITEs have completed.
    pub(crate) fn acknowledge(&mut self) {
        if std::mem::take(&mut self.some_unacknowledged) {
            self.waiting.iter_mut().for_each(|one| one.is_acknowledged = true);
        }
    }

    /// Takes out all stores.
    pub(crate) fn take(&mut self) -> Vec<DeferredStore> {
        self.take_if(|_| true)
    }

    /// Takes out the stores that are due.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<DeferredStore> {
        if self.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return Vec::new();
        }
        self.take_if(|one| one.due_ns.is_some_and(|due_ns| due_ns <= now_ns))
    }

    /// Takes out the stores whose data has to be in memory because this evidence of it arrives at a queue
    /// pair; with ranges, only the stores to bytes of these.
    pub(crate) fn take_shown(
        &mut self,
        evidence: StoreEvidence,
        qpn: Qpn,
        ranges: Option<&[MemoryRange]>,
    ) -> Vec<DeferredStore> {
        self.take_if(|one| {
            let following =
                SenderOrder { same_queue_pair: one.store.qpn == qpn, after_completion: one.is_acknowledged };
            ranges.is_none_or(|ranges| overlap(&one.store.ranges, ranges))
                && one.store.order.guarantees(evidence, following)
        })
    }

    /// Takes out the stores to bytes of these ranges, which the device itself is about to use.
    pub(crate) fn take_overlapping(&mut self, ranges: &[MemoryRange]) -> Vec<DeferredStore> {
        self.take_if(|one| overlap(&one.store.ranges, ranges))
    }

    /// Takes out the stores of a queue pair.
    pub(crate) fn take_for_qp(&mut self, qpn: Qpn) -> Vec<DeferredStore> {
        self.take_if(|one| one.store.qpn == qpn)
    }

    fn take_if(&mut self, goes: impl Fn(&TimedStore) -> bool) -> Vec<DeferredStore> {
        if !self.waiting.iter().any(&goes) {
            return Vec::new();
        }
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(goes);
        self.waiting = kept;
        self.bytes = self.waiting.iter().map(|one| one.store.data.len()).sum();
        self.note_due();
        gone.into_iter().map(|one| one.store).collect()
    }

    fn note_due(&mut self) {
        self.due_ns = self.waiting.iter().filter_map(|one| one.due_ns).min();
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::host::RemoteKey;

    use super::*;

    const ONE: Qpn = Qpn::new(1);
    const OTHER: Qpn = Qpn::new(2);

    fn store(qpn: Qpn, start: u64, delay_ns: u64) -> DeferredStore {
        let key = RemoteKey { rkey: 7, pd: 0, qpn };
        DeferredStore {
            qpn,
            order: StoreOrder::Relaxed,
            target: Target::Remote { key, address: start },
            ranges: vec![MemoryRange::new(start, 64)],
            data: vec![1; 64],
            delay_ns,
        }
    }

    fn starts(stores: &[DeferredStore]) -> Vec<u64> {
        let start = |store: &DeferredStore| match store.target {
            Target::Remote { address, .. } => address,
            Target::Local { offset, .. } => offset,
        };
        stores.iter().map(start).collect()
    }

    #[test]
    fn a_store_is_done_when_its_own_time_has_come() {
        let mut stores = DeferredStores::default();
        stores.push(store(ONE, 0, 500));
        stores.push(store(OTHER, 64, 100));
        assert_eq!((stores.due_ns(), stores.take_due(u64::MAX).len()), (None, 0), "the turn has not ended");
        stores.time(1000);
        stores.push(store(ONE, 128, 10));
        assert_eq!(stores.due_ns(), Some(1100));
        assert_eq!(starts(&stores.take_due(1100)), [64]);
        assert_eq!(stores.due_ns(), Some(1500));
        stores.time(1200);
        assert_eq!(stores.due_ns(), Some(1210));
        assert_eq!(starts(&stores.take()), [0, 128]);
        assert!(stores.is_empty() && stores.due_ns().is_none());
    }

    #[test]
    fn what_shows_data_is_of_its_queue_pair_or_of_its_bytes() {
        let mut stores = DeferredStores::default();
        for (qpn, start) in [(ONE, 0), (OTHER, 64), (ONE, 128)] {
            stores.push(store(qpn, start, 100));
        }
        stores.acknowledge();
        assert_eq!(starts(&stores.take_shown(StoreEvidence::ReceiveCompletion, OTHER, None)), [64]);
        let beside = [MemoryRange::new(192, 8)];
        assert!(stores.take_shown(StoreEvidence::Use, OTHER, Some(&beside)).is_empty());
        let within = [MemoryRange::new(130, 1)];
        assert_eq!(starts(&stores.take_shown(StoreEvidence::Use, OTHER, Some(&within))), [128]);
        assert_eq!(starts(&stores.take_overlapping(&[MemoryRange::new(63, 1)])), [0]);
    }

    #[test]
    fn a_write_passes_one_that_its_sender_does_not_know_to_be_over() {
        let mut stores = DeferredStores::default();
        stores.push(store(ONE, 0, 100));
        let same = [MemoryRange::new(0, 64)];
        assert!(stores.take_shown(StoreEvidence::Replacement, ONE, Some(&same)).is_empty());
        stores.acknowledge();
        assert_eq!(stores.take_shown(StoreEvidence::Replacement, ONE, Some(&same)).len(), 1);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut stores = DeferredStores::default();
        let mut count = 0;
        while !stores.is_full() {
            stores.push(store(ONE, 64 * count, 1));
            count += 1;
        }
        assert_eq!(count as usize, MAX_STORES);
        assert_eq!(stores.take_for_qp(ONE).len(), MAX_STORES);
        assert!(!stores.is_full());
    }
}

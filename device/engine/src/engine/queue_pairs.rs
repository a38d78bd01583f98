//! The table of queue pairs: from a number to its state machine in one index step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pumice_fabric::xrc::{self, TargetHost, TargetSharing, Unavailable};
use pumice_model::profile::QpnReuse;
use pumice_platform::error::ResourceError;
use pumice_platform::table::try_new_list;
use pumice_transport::qp::QueuePair;
use pumice_transport::wire::Qpn;

use super::budget::Budget;

/// Most queue pairs of one HCA: the low 16 bits of a number are its index here.
pub(crate) const MAX_QUEUE_PAIRS: u32 = 65_536;
/// Number of destroyed queue pairs that are told from those that never existed.
const REMEMBERED_DESTROYED: usize = 256;
/// The first index that is assigned: 0 and 1 are the management queue pairs.
const FIRST_INDEX: u32 = 17;

/// Number of indices of which the first one is drawn, so that a forged packet has to guess it. A larger
/// number would cost every process up to a megabyte, because a table is used up to its highest index.
const START_INDICES: u64 = 1 << 14;

/// Returns an empty table with room for an entry of each queue pair. All of it is allocated at once, because
/// a table that grows with the indices in use looks like a leak, and may find no memory in the middle of a
/// call. The part that is not used costs addresses, and no memory.
///
/// # Errors
/// Fails with `NoMemory` if the memory cannot be allocated.
pub(crate) fn room_for_all<T>() -> Result<Vec<T>, ResourceError> {
    try_new_list(MAX_QUEUE_PAIRS as usize, "queue pairs")
}

/// The packets of a queue pair since it was created, requests and responses, with their bytes from the BTH to
/// the ICRC.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QpTraffic {
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_packets: u64,
    pub(crate) received_bytes: u64,
}

impl QpTraffic {
    #[inline]
    pub(crate) fn sent(&mut self, packets: u32, bytes: u64) {
        self.sent_packets += u64::from(packets);
        self.sent_bytes += bytes;
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.received_packets += 1;
        self.received_bytes += bytes as u64;
    }
}

/// A queue pair and what the engine stores about it.
pub(crate) struct QpEntry {
    pub(crate) traffic: QpTraffic,
    pub(crate) qp: QueuePair,
    /// The budget number of the peer process, once connected.
    pub(crate) peer: Option<u32>,
    /// Number of PSNs in flight at the last accounting, and their charge in bytes.
    in_flight_packets: u32,
    in_flight_bytes: u64,
    charged_bytes: u64,
    /// Number of requests posted, to be compared with those polled.
    pub(crate) posted_sends: u32,
    /// The sharing of the queue pair with other processes.
    pub(crate) sharing: TargetSharing,
    /// The port of the device at which the packets of a queue pair without a peer must arrive; 0: any.
    pub(crate) takes_at: u8,
}

impl QpEntry {
    pub(crate) fn new(qp: QueuePair, sharing: TargetSharing) -> QpEntry {
        QpEntry {
            traffic: QpTraffic::default(),
            qp,
            peer: None,
            in_flight_packets: 0,
            in_flight_bytes: 0,
            charged_bytes: 0,
            posted_sends: 0,
            sharing,
            takes_at: 0,
        }
    }

    /// Runs `happen` on the present state of the queue pair, wherever it is shared.
    ///
    /// # Errors
    /// The queue pair is not available, and `happen` was not called.
    #[inline]
    pub(crate) fn with<H: TargetHost, R>(
        &mut self,
        host: &mut H,
        happen: impl FnOnce(&mut QueuePair, &mut H) -> R,
    ) -> Result<R, Unavailable> {
        self.sharing.with(&mut self.qp, host, happen)
    }

    /// Charges the cost of packets that were sent. PSNs beyond them are READ responses to come.
    #[inline]
    pub(crate) fn sent(&mut self, cost_bytes: u64, packets: u32, budget: &Budget) {
        let now = self.qp.in_flight();
        let psns = now.saturating_sub(self.in_flight_packets);
        let expected = u64::from(psns.saturating_sub(packets));
        self.in_flight_bytes += cost_bytes + expected * budget.packet_cost(self.peer).of(4096);
        self.in_flight_packets = now;
    }

    /// Charges the cost of one packet that was sent, as [`QpEntry::sent`] and [`QpEntry::account`] do.
    #[inline]
    pub(crate) fn sent_one(&mut self, cost_bytes: u64, budget: &mut Budget) {
        debug_assert_eq!(
            self.qp.in_flight(),
            self.in_flight_packets + 1,
            "what was acknowledged is accounted"
        );
        self.in_flight_packets += 1;
        self.in_flight_bytes += cost_bytes;
        if let Some(peer) = self.peer {
            budget.change(peer, self.charged_bytes, self.in_flight_bytes);
            self.charged_bytes = self.in_flight_bytes;
        }
    }

    /// Updates the budget to what is in flight; what was acknowledged is released in proportion.
    #[inline]
    pub(crate) fn account(&mut self, budget: &mut Budget) {
        let now = self.qp.in_flight();
        let before = self.in_flight_packets;
        if now == 0 {
            self.in_flight_bytes = 0;
        } else if now < before {
            self.in_flight_bytes = self.in_flight_bytes * u64::from(now) / u64::from(before.max(1));
        }
        self.in_flight_packets = now;
        if let Some(peer) = self.peer
            && self.charged_bytes != self.in_flight_bytes
        {
            budget.change(peer, self.charged_bytes, self.in_flight_bytes);
            self.charged_bytes = self.in_flight_bytes;
        }
    }

    /// Gives back the whole charge, before the peer changes or the queue pair is removed.
    pub(crate) fn release(&mut self, budget: &mut Budget) {
        if let Some(peer) = self.peer.take() {
            budget.change(peer, self.charged_bytes, 0);
            budget.leave(peer);
        }
        self.charged_bytes = 0;
        self.in_flight_bytes = 0;
        self.in_flight_packets = 0;
    }
}

/// All queue pairs, by index.
pub(crate) struct QueuePairs {
    entries: Vec<Option<Box<QpEntry>>>,
    next_index: u32,
    reuse: QpnReuse,
    count: u32,
    /// Indices of queue pairs with other processes' numbers, above those of this process's.
    foreign: BTreeMap<Qpn, u32>,
    /// Numbers of the queue pairs destroyed last, the newest at the end.
    destroyed: VecDeque<Qpn>,
    /// Indices that programs have reserved, so that no queue pair gets them.
    reserved: BTreeSet<u16>,
}

impl QueuePairs {
    /// Returns an empty table with room for all queue pairs. `seed` chooses the first index.
    ///
    /// # Errors
    /// Fails with `NoMemory` if the memory cannot be allocated.
    pub(crate) fn new(seed: u64, reuse: QpnReuse) -> Result<QueuePairs, ResourceError> {
        let next_index = FIRST_INDEX + (seed % START_INDICES) as u32;
        Ok(QueuePairs {
            entries: room_for_all()?,
            next_index,
            reuse,
            count: 0,
            foreign: BTreeMap::new(),
            destroyed: VecDeque::new(),
            reserved: BTreeSet::new(),
        })
    }

    /// Returns a free index: that of the queue pair that was destroyed last, if numbers are reused at once.
    /// Else indices go round, so that a number is not reused soon.
    ///
    /// # Errors
    /// All indices are in use.
    pub(crate) fn free_index(&mut self) -> Result<u16, ResourceError> {
        if self.reuse == QpnReuse::AtOnce
            && let Some(index) = self.destroyed_last()
        {
            return Ok(index);
        }
        for _ in FIRST_INDEX..MAX_QUEUE_PAIRS {
            let index = self.next_index;
            self.next_index = if index + 1 < MAX_QUEUE_PAIRS { index + 1 } else { FIRST_INDEX };
            let is_free = self.entries.get(index as usize).is_none_or(Option::is_none);
            if is_free && !self.reserved.contains(&(index as u16)) {
                return Ok(index as u16);
            }
        }
        Err(ResourceError::no_memory(format!("all {MAX_QUEUE_PAIRS} queue pair numbers are in use")))
    }

    /// Returns the free index of the queue pair of this process that was destroyed last.
    fn destroyed_last(&self) -> Option<u16> {
        let is_free = |index: u16| {
            self.entries.get(usize::from(index)).is_some_and(Option::is_none)
                && !self.reserved.contains(&index)
        };
        let indices = self.destroyed.iter().rev().map(|qpn| qpn.index());
        indices.filter(|index| u32::from(*index) >= FIRST_INDEX).find(|index| is_free(*index))
    }

    /// Reserves a free index, so that no queue pair gets it.
    ///
    /// # Errors
    /// All indices are in use.
    pub(crate) fn reserve_index(&mut self) -> Result<u16, ResourceError> {
        let index = self.free_index()?;
        self.reserved.insert(index);
        Ok(index)
    }

    /// Ends the reservation of an index. Returns false if the index is not reserved.
    pub(crate) fn release_index(&mut self, index: u16) -> bool {
        self.reserved.remove(&index)
    }

    pub(crate) fn insert(&mut self, index: u32, entry: QpEntry) {
        let at = index as usize;
        while self.entries.len() <= at {
            self.entries.push(None);
        }
        if let Some(place) = self.entries.get_mut(at) {
            let qpn = entry.qp.context().qpn;
            self.destroyed.retain(|destroyed| *destroyed != qpn);
            *place = Some(Box::new(entry));
            self.count += 1;
        }
    }

    /// Stores a queue pair with another process's number, and returns its index.
    pub(crate) fn insert_foreign(&mut self, entry: QpEntry) -> u32 {
        let qpn = entry.qp.context().qpn;
        let free =
            (MAX_QUEUE_PAIRS..).find(|&index| self.entries.get(index as usize).is_none_or(Option::is_none));
        let index = free.unwrap_or(MAX_QUEUE_PAIRS);
        self.insert(index, entry);
        self.foreign.insert(qpn, index);
        index
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<QpEntry>> {
        if index >= MAX_QUEUE_PAIRS {
            self.foreign.retain(|_, of| *of != index);
        }
        let entry = self.entries.get_mut(index as usize)?.take();
        self.count -= u32::from(entry.is_some());
        if let Some(entry) = &entry {
            self.note_destroyed(entry.qp.context().qpn);
        }
        entry
    }

    fn note_destroyed(&mut self, qpn: Qpn) {
        if self.destroyed.len() >= REMEMBERED_DESTROYED {
            self.destroyed.pop_front();
        }
        self.destroyed.push_back(qpn);
    }

    /// Reports whether a queue pair of this number was destroyed not long ago.
    pub(crate) fn was_destroyed(&self, qpn: Qpn) -> bool {
        self.destroyed.contains(&qpn)
    }

    /// Returns the queue pair with this index.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut QpEntry> {
        self.entries.get_mut(index as usize)?.as_deref_mut()
    }

    /// Returns the queue pairs from an index on.
    pub(crate) fn starting_at(&self, index: u32) -> impl Iterator<Item = (u32, &QpEntry)> {
        let entries = (index..).zip(self.entries.iter().skip(index as usize));
        entries.filter_map(|(index, entry)| Some((index, entry.as_deref()?)))
    }

    /// Returns the queue pair with this number.
    #[inline]
    pub(crate) fn by_number(&mut self, qpn: Qpn) -> Option<(u32, &mut QpEntry)> {
        let own_index = u32::from(qpn.index());
        let own = self.entries.get(own_index as usize).and_then(Option::as_deref);
        let index = match own {
            Some(entry) if entry.qp.context().qpn == qpn => own_index,
            _ => *self.foreign.get(&qpn)?,
        };
        Some((index, self.at_mut(index)?))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

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

//! The table of queue pairs: number → state machine, in one index step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pumice_ground::error::ResourceError;
use pumice_share::xrc::{Sharing, TargetHost, Unavailable};
use pumice_transport::qp::QueuePair;
use pumice_transport::wire::Qpn;

use super::budget::Budget;

/// Queue pairs of one HCA: the low 16 bits of a number are its index here.
pub(crate) const MAX_QUEUE_PAIRS: u32 = 65_536;
/// Destroyed queue pairs that are told from those that never were.
const REMEMBERED_DESTROYED: usize = 256;
/// The first index given out: 0 and 1 are the management queue pairs.
const FIRST_INDEX: u32 = 17;

/// The first index is one of so many, so that a forged packet has to guess its number. All of them would cost
/// every process a megabyte, because the table is as long as its highest index.
const START_INDICES: u64 = 1 << 14;

/// Packets of a queue pair since it was made, requests and responses, with their bytes from the BTH to the
/// ICRC.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_packets: u64,
    pub(crate) received_bytes: u64,
}

impl Traffic {
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

/// A queue pair and what the engine keeps about it.
pub(crate) struct QpEntry {
    pub(crate) traffic: Traffic,
    pub(crate) qp: QueuePair,
    /// Peer process, once connected.
    pub(crate) peer: Option<u32>,
    /// PSNs in flight when last looked at, and what they were charged.
    in_flight_packets: u32,
    in_flight_bytes: u64,
    charged_bytes: u64,
    /// Requests posted, to be compared with those polled.
    pub(crate) posted_sends: u32,
    /// Which other processes are the same queue pair.
    pub(crate) sharing: Sharing,
    /// The port of the device that its packets must come to, if it has no peer that tells; 0: any.
    pub(crate) takes_at: u8,
}

impl QpEntry {
    pub(crate) fn new(qp: QueuePair, sharing: Sharing) -> QpEntry {
        QpEntry {
            traffic: Traffic::default(),
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

    /// Lets something happen to the queue pair as it is now, wherever it is shared.
    ///
    /// # Errors
    /// It cannot be had; nothing happened.
    #[inline]
    pub(crate) fn with<H: TargetHost, R>(
        &mut self,
        host: &mut H,
        happen: impl FnOnce(&mut QueuePair, &mut H) -> R,
    ) -> Result<R, Unavailable> {
        self.sharing.with(&mut self.qp, host, happen)
    }

    /// Packets were sent: what they cost. PSNs beyond them are READ responses to come.
    #[inline]
    pub(crate) fn sent(&mut self, cost_bytes: u64, packets: u32, budget: &Budget) {
        let now = self.qp.in_flight();
        let psns = now.saturating_sub(self.in_flight_packets);
        let expected = u64::from(psns.saturating_sub(packets));
        self.in_flight_bytes += cost_bytes + expected * budget.packet_cost(self.peer).of(4096);
        self.in_flight_packets = now;
    }

    /// Brings the budget in line with what is in flight; what was acknowledged is released in
    /// proportion.
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

    /// Gives back everything, before the peer changes or the queue pair goes.
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
    count: u32,
    /// Indices of queue pairs with other processes' numbers, behind those of this one's.
    foreign: BTreeMap<Qpn, u32>,
    /// Numbers of the queue pairs destroyed last, the newest at the end.
    destroyed: VecDeque<Qpn>,
    /// Indices that programs keep from being given to queue pairs.
    reserved: BTreeSet<u16>,
}

impl QueuePairs {
    /// None. `seed` chooses the first index.
    pub(crate) fn new(seed: u64) -> QueuePairs {
        let next_index = FIRST_INDEX + (seed % START_INDICES) as u32;
        QueuePairs {
            entries: Vec::new(),
            next_index,
            count: 0,
            foreign: BTreeMap::new(),
            destroyed: VecDeque::new(),
            reserved: BTreeSet::new(),
        }
    }

    /// A free index. Indices go round, so that a number is not used again soon.
    ///
    /// # Errors
    /// All are in use.
    pub(crate) fn free_index(&mut self) -> Result<u16, ResourceError> {
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

    /// Keeps a free index from being given to a queue pair.
    ///
    /// # Errors
    /// All are in use.
    pub(crate) fn reserve_index(&mut self) -> Result<u16, ResourceError> {
        let index = self.free_index()?;
        self.reserved.insert(index);
        Ok(index)
    }

    /// Ends that. False: the index is not reserved.
    pub(crate) fn release_index(&mut self, index: u16) -> bool {
        self.reserved.remove(&index)
    }

    pub(crate) fn insert(&mut self, index: u32, entry: QpEntry) {
        let at = index as usize;
        while self.entries.len() <= at {
            self.entries.push(None);
        }
        if let Some(place) = self.entries.get_mut(at) {
            *place = Some(Box::new(entry));
            self.count += 1;
        }
    }

    /// Keeps a queue pair with another process's number; its index.
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

    /// Whether a queue pair of this number was destroyed not long ago.
    pub(crate) fn was_destroyed(&self, qpn: Qpn) -> bool {
        self.destroyed.contains(&qpn)
    }

    /// The queue pair with this index.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut QpEntry> {
        self.entries.get_mut(index as usize)?.as_deref_mut()
    }

    /// The queue pairs from an index on.
    pub(crate) fn starting_at(&self, index: u32) -> impl Iterator<Item = (u32, &QpEntry)> {
        let entries = (index..).zip(self.entries.iter().skip(index as usize));
        entries.filter_map(|(index, entry)| Some((index, entry.as_deref()?)))
    }

    /// The queue pair with this number.
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

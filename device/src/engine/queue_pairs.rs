//! The table of queue pairs: number → state machine, in one index step.

use std::collections::{BTreeMap, VecDeque};

use pumice_transport::qp::QueuePair;
use pumice_transport::types::QpType;
use pumice_transport::wire::Qpn;

use super::budget::Budget;
use super::targets::SharedTarget;
use crate::ground::error::ResourceError;

/// Queue pairs of one HCA: the low 16 bits of a number are its slot here.
pub(crate) const MAX_QUEUE_PAIRS: u32 = 65_536;
/// Destroyed queue pairs that are told from those that never were.
const REMEMBERED_DESTROYED: usize = 256;
/// The first slot given out: 0 and 1 are the management queue pairs.
const FIRST_SLOT: u32 = 17;

/// The first slot is one of so many, so that a forged packet has to guess its number. All of them would cost every
/// process a megabyte, because tables are indexed by slot.
const START_SLOTS: u64 = 1 << 14;

/// A queue pair and what the engine keeps about it.
pub(crate) struct QpEntry {
    pub(crate) qp: QueuePair,
    /// Peer process, once connected.
    pub(crate) peer: Option<u32>,
    /// PSNs in flight when last looked at, and what they were charged.
    in_flight_packets: u32,
    in_flight_bytes: u64,
    charged_bytes: u64,
    /// Requests posted, to be compared with those polled.
    pub(crate) posted_sends: u32,
    /// An XRC target that other processes are as well.
    pub(crate) shared: Option<Box<SharedTarget>>,
}

impl QpEntry {
    pub(crate) fn new(qp: QueuePair) -> QpEntry {
        QpEntry {
            qp,
            peer: None,
            in_flight_packets: 0,
            in_flight_bytes: 0,
            charged_bytes: 0,
            posted_sends: 0,
            shared: None,
        }
    }

    /// Packets were sent: what they cost. PSNs beyond them are READ responses to come.
    pub(crate) fn sent(&mut self, cost_bytes: u64, packets: u32, budget: &Budget) {
        let now = self.qp.in_flight();
        let psns = now.saturating_sub(self.in_flight_packets);
        let expected = u64::from(psns.saturating_sub(packets));
        self.in_flight_bytes += cost_bytes + expected * budget.packet_cost(self.peer).of(4096);
        self.in_flight_packets = now;
    }

    /// Brings the budget in line with what is in flight; what was acknowledged is released in
    /// proportion.
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

/// All queue pairs, by slot.
pub(crate) struct QueuePairs {
    slots: Vec<Option<Box<QpEntry>>>,
    next_slot: u32,
    count: u32,
    /// Places of XRC targets with other processes' numbers, behind those of this one's.
    foreign: BTreeMap<Qpn, u32>,
    /// Numbers of the queue pairs destroyed last, the newest at the end.
    destroyed: VecDeque<Qpn>,
}

impl QueuePairs {
    /// None. `seed` chooses the first slot.
    pub(crate) fn new(seed: u64) -> QueuePairs {
        let next_slot = FIRST_SLOT + (seed % START_SLOTS) as u32;
        QueuePairs {
            slots: Vec::new(),
            next_slot,
            count: 0,
            foreign: BTreeMap::new(),
            destroyed: VecDeque::new(),
        }
    }

    /// A free slot. Slots go round, so that a number is not used again soon.
    ///
    /// # Errors
    /// All are in use.
    pub(crate) fn free_slot(&mut self) -> Result<u32, ResourceError> {
        for _ in FIRST_SLOT..MAX_QUEUE_PAIRS {
            let slot = self.next_slot;
            self.next_slot = if slot + 1 < MAX_QUEUE_PAIRS { slot + 1 } else { FIRST_SLOT };
            if self.slots.get(slot as usize).is_none_or(Option::is_none) {
                return Ok(slot);
            }
        }
        Err(ResourceError::no_memory(format!("all {MAX_QUEUE_PAIRS} queue pair numbers are in use")))
    }

    pub(crate) fn insert(&mut self, slot: u32, entry: QpEntry) {
        let at = slot as usize;
        while self.slots.len() <= at {
            self.slots.push(None);
        }
        if let Some(place) = self.slots.get_mut(at) {
            *place = Some(Box::new(entry));
            self.count += 1;
        }
    }

    /// Keeps the queue pair of an XRC target with another process's number; its place.
    pub(crate) fn insert_foreign(&mut self, qpn: Qpn, entry: QpEntry) -> u32 {
        let free =
            (MAX_QUEUE_PAIRS..).find(|&place| self.slots.get(place as usize).is_none_or(Option::is_none));
        let place = free.unwrap_or(MAX_QUEUE_PAIRS);
        self.insert(place, entry);
        self.foreign.insert(qpn, place);
        place
    }

    /// Numbers of the XRC targets with other processes' numbers.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = Qpn> {
        self.foreign.keys().copied()
    }

    /// Numbers of this process's queue pairs that initiate and are targets of a shared domain.
    pub(crate) fn halves_of(&self, domain: u32) -> Vec<Qpn> {
        let own = self.slots.iter().take(MAX_QUEUE_PAIRS as usize).flatten();
        own.filter(|entry| entry.qp.qp_type() == QpType::XrcDuplex)
            .filter(|entry| entry.shared.as_ref().is_some_and(|shared| shared.domain() == domain))
            .map(|entry| entry.qp.context().qpn)
            .collect()
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<QpEntry>> {
        if slot >= MAX_QUEUE_PAIRS {
            self.foreign.retain(|_, place| *place != slot);
        }
        let entry = self.slots.get_mut(slot as usize)?.take();
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

    /// The queue pair in a slot.
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut QpEntry> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// The queue pair with this number.
    pub(crate) fn by_number(&mut self, qpn: Qpn) -> Option<(u32, &mut QpEntry)> {
        let slot = u32::from(qpn.index());
        let own = self.slots.get(slot as usize).and_then(Option::as_deref);
        let place = match own {
            Some(entry) if entry.qp.context().qpn == qpn => slot,
            _ => *self.foreign.get(&qpn)?,
        };
        Some((place, self.at_mut(place)?))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

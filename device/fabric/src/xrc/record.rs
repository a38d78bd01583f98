//! A target of a shared XRC domain as all processes of the domain know it.

use pumice_transport::qp::TargetSnapshot;
use pumice_transport::wire::ProcessIndex;

/// Number of events that a record stores for processes that have not seen them; these lose older ones.
pub(crate) const EVENTS: usize = 32;

/// A target as all processes of its domain know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetRecord {
    /// Sequence number, which grows with each change and begins anywhere.
    pub(crate) sequence: u64,
    /// Queue pair number of the target.
    pub(crate) qpn: u32,
    /// The target is the receiving half of a queue pair of OFED 1.x: only its maker may open or change it.
    pub(crate) half: bool,
    /// Processes that are registered for the target: a bit for each index.
    pub(crate) registered: [u64; 4],
    /// Process that has the receive request of the message in progress; 0 if none has.
    pub(crate) executor: u64,
    /// Number of events raised so far.
    pub(crate) event_count: u64,
    /// Last of these events; the event with number n (from 0) is at n modulo the length.
    pub(crate) events: [u8; EVENTS],
    /// Protocol state of the target.
    pub(crate) snapshot: TargetSnapshot,
}

impl TargetRecord {
    /// Reports whether a process is registered.
    pub fn is_registered(&self, process: ProcessIndex) -> bool {
        let index = process.value();
        self.registered.get(usize::from(index / 64)).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Registers a process, or ends its registration.
    pub fn register(&mut self, process: ProcessIndex, registered: bool) {
        let index = process.value();
        if let Some(word) = self.registered.get_mut(usize::from(index / 64)) {
            let bit = 1 << (index % 64);
            *word = if registered { *word | bit } else { *word & !bit };
        }
    }

    /// Adds an event.
    pub fn raise(&mut self, event: u8) {
        if let Some(slot) = self.events.get_mut((self.event_count % EVENTS as u64) as usize) {
            *slot = event;
        }
        self.event_count = self.event_count.wrapping_add(1);
    }

    /// Returns the events from number `seen` on that are still stored.
    pub fn events_since(&self, seen: u64) -> impl Iterator<Item = u8> {
        let first = seen.max(self.event_count.saturating_sub(EVENTS as u64));
        let count = self.event_count.saturating_sub(first).min(EVENTS as u64);
        (0..count)
            .filter_map(move |n| self.events.get((first.wrapping_add(n) % EVENTS as u64) as usize).copied())
    }

    /// Ends the registrations of processes that are gone, and returns whether there were any. `live` is by
    /// index.
    pub fn forget_the_dead(&mut self, live: &[bool; 256]) -> bool {
        let before = self.registered;
        for index in 0..=u8::MAX {
            if !live.get(usize::from(index)).is_some_and(|&live| live) {
                self.register(ProcessIndex::new(index), false);
            }
        }
        self.registered != before
    }

    /// Reports whether no process is registered.
    pub fn is_unused(&self) -> bool {
        self.registered == [0; 4]
    }
}

//! The order in which a completion queue returns its completions when a schedule is shuffled.
//!
//! Completions of one work queue keep their order. One of them may wait until a few later ones have come, or
//! until a few polls have found nothing. **Invariant:** while the queue is armed, nothing waits and no poll
//! returns less than there is: a program that sleeps after it has polled a queue empty sleeps rightly.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fnv::FnvHashMap;
use pumice_model::shuffle::{Choice, Shuffle};
use pumice_platform::error::ResourceError;
use pumice_platform::outside;

/// Largest number of completions that may come in front of one that waits.
const MAX_OVERTAKING: u64 = 8;
/// Number of entries from the front that are examined: more than completions can wait.
const WINDOW: usize = 16;
/// Number of exponents: a completion waits for at most 2 to the power of one less than this empty polls.
const PATIENCE_EXPONENTS: u64 = 7;
/// Longest time that a completion waits, however seldom a program polls: some poll once a second.
const LONGEST_HOLD: Duration = Duration::from_millis(10);

/// A work queue: the ordinal of its queue pair, and whether it is that of receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WorkQueueId {
    pub(super) ordinal: u32,
    pub(super) receives: bool,
}

/// The state of one completion in the ring.
#[derive(Debug, Clone, Copy)]
struct HoldTicket {
    of: WorkQueueId,
    /// Number of completions added to the queue until which it waits.
    due: u64,
    /// Number of polls that found nothing until which it waits otherwise.
    patience: u32,
    later: u64,
}

/// The state of a shuffled completion queue, beside its ring.
#[derive(Debug)]
pub(super) struct HeldCompletions {
    shuffle: Arc<Shuffle>,
    /// Ordinal of the completion queue on its device.
    ordinal: u32,
    /// Tickets of the completions; as long as the ring.
    tickets: VecDeque<HoldTicket>,
    /// Number of completions of each work queue so far, and the number of its queue pair.
    counts: FnvHashMap<WorkQueueId, (u64, u32)>,
    added: u64,
    taken: u64,
    armings: u64,
    /// Number of completions that had been added when the queue was last armed.
    added_at_arming: u64,
    /// The last arming made an event at once.
    fired_at_arming: bool,
    /// Number of polls that found nothing but completions that wait, since one found something.
    empty_polls: u32,
    /// Time of the first of these polls. In virtual time nothing passes between polls, and it is not read.
    empty_since: Option<Instant>,
    /// Number of returned completions at which a batch has ended last.
    ended_after: u64,
}

impl HeldCompletions {
    pub(crate) fn new(shuffle: Arc<Shuffle>, ordinal: u32) -> HeldCompletions {
        HeldCompletions {
            shuffle,
            ordinal,
            tickets: VecDeque::new(),
            counts: FnvHashMap::default(),
            added: 0,
            taken: 0,
            armings: 0,
            added_at_arming: 0,
            fired_at_arming: false,
            empty_polls: 0,
            empty_since: None,
            ended_after: 0,
        }
    }

    /// Makes room for `depth` tickets.
    ///
    /// # Errors
    /// Fails with `NoMemory`.
    pub(crate) fn reserve(&mut self, depth: usize) -> Result<(), ResourceError> {
        self.tickets.try_reserve_exact(depth.saturating_sub(self.tickets.len())).map_err(|_| {
            ResourceError::no_memory(format!("a completion queue of {depth} entries; ask for fewer"))
        })
    }

    /// Adds a completion at the end of the ring. With `urgent` it and all before it wait no longer. With
    /// `failed` it is not overtaken: what is flushed after it is its consequence.
    pub(crate) fn added(&mut self, of: WorkQueueId, qpn: u32, urgent: bool, failed: bool) {
        let (count, _) = self.counts.entry(of).or_insert((0, qpn));
        *count += 1;
        let identity = [self.ordinal.into(), of.ordinal.into(), of.receives.into(), *count];
        let mut random = self.shuffle.draw(Choice::Hold, &identity);
        let waits = random.chance(self.shuffle.share_ppm(Choice::Hold)) && !failed;
        let (later, exponent) = (1 + random.below(MAX_OVERTAKING), random.below(PATIENCE_EXPONENTS));
        let later = if waits { later } else { 0 };
        let patience = match (waits, self.shuffle.is_virtual_time()) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 1 << exponent,
        };
        self.added += 1;
        self.tickets.push_back(HoldTicket { of, due: self.added + later, patience, later });
        if failed {
            // They come in the order of the ring.
            self.tickets.iter_mut().for_each(|ticket| ticket.later = 0);
        }
        if urgent {
            self.release();
        }
    }

    /// Ends the waits of all completions in the ring.
    pub(super) fn release(&mut self) {
        for ticket in &mut self.tickets {
            (ticket.due, ticket.patience) = (0, 0);
        }
    }

    /// Returns the index in the ring of the next completion to return, and removes its ticket; `None` if the
    /// poll finds nothing.
    pub(super) fn take(&mut self, armed: bool) -> Option<usize> {
        let index = self.next(armed)?;
        self.tickets.remove(index);
        self.taken += 1;
        (self.empty_polls, self.empty_since) = (0, None);
        Some(index)
    }

    /// Notes that a poll found nothing.
    pub(super) fn found_nothing(&mut self) {
        self.empty_polls = self.empty_polls.saturating_add(1);
        if !self.shuffle.is_virtual_time() {
            self.empty_since.get_or_insert_with(outside::now);
        }
    }

    fn next(&self, armed: bool) -> Option<usize> {
        let front = self.tickets.front()?;
        let is_long = |since: Instant| outside::since(since) >= LONGEST_HOLD;
        let released = armed || self.empty_polls >= front.patience || self.empty_since.is_some_and(is_long);
        let mut seen: Vec<WorkQueueId> = Vec::with_capacity(WINDOW);
        let mut least: Option<(u64, usize)> = None;
        for (index, ticket) in self.tickets.iter().take(WINDOW).enumerate() {
            // The order of one work queue stays.
            if seen.contains(&ticket.of) {
                continue;
            }
            seen.push(ticket.of);
            if ticket.due != 0 && ticket.due <= self.added {
                return Some(index);
            }
            if least.is_none_or(|(later, _)| ticket.later < later) {
                least = Some((ticket.later, index));
            }
        }
        released.then_some(least?.1)
    }

    /// Returns how many completions a poll that asks for `requested` may return: at least one; with
    /// `returns_all`, all there are.
    pub(super) fn max_returned(&self, requested: usize, returns_all: bool) -> usize {
        if requested <= 1 || returns_all {
            return requested;
        }
        let mut random = self.shuffle.draw(Choice::Batch, &[self.ordinal.into(), self.taken]);
        if !random.chance(self.shuffle.share_ppm(Choice::Batch)) {
            return requested;
        }
        1 + random.below(requested as u64) as usize
    }

    /// Reports whether the batch of a program that takes one completion after the other ends here, though
    /// there may be more. It does so once for each completion: a program may ask for the next one again and
    /// again, and has to find it.
    pub(super) fn ends_batch(&mut self, returns_all: bool) -> bool {
        let ends = self.ended_after != self.taken && self.max_returned(2, returns_all) < 2;
        if ends {
            self.ended_after = self.taken;
        }
        ends
    }

    /// Removes the ticket of the oldest completion of the ring, which was overwritten.
    pub(crate) fn overwritten(&mut self) {
        self.tickets.pop_front();
    }

    /// Notes that the queue is armed, and returns whether that makes an event at once. Such an event is for a
    /// completion that came since the last arming, which the program may have polled already. It is never
    /// made twice in succession, so that a program which arms again after an event comes to sleep.
    pub(super) fn armed(&mut self) -> bool {
        self.release();
        self.armings += 1;
        let mut random = self.shuffle.draw(Choice::SpuriousEvent, &[self.ordinal.into(), self.armings]);
        let drawn = random.chance(self.shuffle.share_ppm(Choice::SpuriousEvent));
        let was_added = std::mem::replace(&mut self.added_at_arming, self.added) != self.added;
        self.fired_at_arming = drawn && was_added && !self.fired_at_arming;
        self.fired_at_arming
    }

    /// Removes completions of the queue pair `qpn`, which is destroyed or reset. The ring keeps the
    /// completions for which `keep` returns true, called from front to back.
    pub(crate) fn retain(&mut self, qpn: u32, mut keep: impl FnMut() -> bool) {
        self.counts.retain(|_, (_, of)| *of != qpn);
        self.tickets.retain(|_| keep());
    }
}

#[cfg(test)]
#[path = "held_completions_tests.rs"]
mod tests;

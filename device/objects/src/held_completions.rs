//! The order in which a completion queue gives out what it has, when a schedule is shuffled.
//!
//! Completions of one work queue keep their order. One of them may wait until a few later ones have come,
//! or until a few polls have found nothing. **Invariant:** while the queue is armed, nothing waits and no
//! poll returns less than there is: a program that sleeps after it has polled a queue empty sleeps rightly.

use std::collections::VecDeque;
use std::sync::Arc;

use fnv::FnvHashMap;
use pumice_faults::shuffle::{Choice, Shuffle};
use pumice_ground::error::ResourceError;

/// Completions that may come in front of one that waits.
const MOST_LATER: u64 = 8;
/// Entries from the front that are looked at: more than completions can wait.
const WINDOW: usize = 16;
/// A completion waits for at most 2 to the power of one less than this empty polls.
const PATIENCE_EXPONENTS: u64 = 7;

/// A work queue: the ordinal of its queue pair, and whether it is that of receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WorkQueue {
    pub(super) ordinal: u32,
    pub(super) receives: bool,
}

/// Of one completion in the ring.
#[derive(Debug, Clone, Copy)]
struct Ticket {
    of: WorkQueue,
    /// It waits until so many completions were added to the queue.
    due: u64,
    /// Or until so many polls found nothing.
    patience: u32,
    later: u64,
}

/// What a shuffled completion queue knows about its ring.
#[derive(Debug)]
pub(super) struct HeldCompletions {
    shuffle: Arc<Shuffle>,
    /// The ordinal of the completion queue on its device.
    ordinal: u32,
    /// As long as the ring.
    tickets: VecDeque<Ticket>,
    /// Completions of each work queue so far, and the number of its queue pair.
    counts: FnvHashMap<WorkQueue, (u64, u32)>,
    added: u64,
    taken: u64,
    armings: u64,
    /// Completions that had been added when the queue was last armed.
    added_at_arming: u64,
    /// The last arming made an event at once.
    fired_at_arming: bool,
    /// Polls that found nothing but what waits, since one found something.
    empty_polls: u32,
    /// After so many completions were given out a batch has ended last.
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
            ended_after: 0,
        }
    }

    /// Makes room for `depth` tickets.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(crate) fn reserve(&mut self, depth: usize) -> Result<(), ResourceError> {
        self.tickets.try_reserve_exact(depth.saturating_sub(self.tickets.len())).map_err(|_| {
            ResourceError::no_memory(format!("a completion queue of {depth} entries; ask for fewer"))
        })
    }

    /// A completion was added to the end of the ring. One that is `urgent` and all before it wait no longer.
    /// One that `failed` is not overtaken: what is flushed after it is its consequence.
    pub(crate) fn added(&mut self, of: WorkQueue, qpn: u32, urgent: bool, failed: bool) {
        let (count, _) = self.counts.entry(of).or_insert((0, qpn));
        *count += 1;
        let identity = [self.ordinal.into(), of.ordinal.into(), of.receives.into(), *count];
        let mut random = self.shuffle.draw(Choice::Hold, &identity);
        let waits = random.chance(self.shuffle.share_ppm(Choice::Hold)) && !failed;
        let (later, exponent) = (1 + random.below(MOST_LATER), random.below(PATIENCE_EXPONENTS));
        let later = if waits { later } else { 0 };
        let patience = match (waits, self.shuffle.is_virtual_time()) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 1 << exponent,
        };
        self.added += 1;
        self.tickets.push_back(Ticket { of, due: self.added + later, patience, later });
        if failed {
            // They come in the order of the ring.
            self.tickets.iter_mut().for_each(|ticket| ticket.later = 0);
        }
        if urgent {
            self.release();
        }
    }

    /// Nothing in the ring waits any longer.
    pub(super) fn release(&mut self) {
        for ticket in &mut self.tickets {
            (ticket.due, ticket.patience) = (0, 0);
        }
    }

    /// The index in the ring of the next completion to give out, whose ticket is removed; `None`: the poll
    /// finds nothing.
    pub(super) fn take(&mut self, armed: bool) -> Option<usize> {
        let index = self.next(armed)?;
        self.tickets.remove(index);
        self.taken += 1;
        self.empty_polls = 0;
        Some(index)
    }

    /// A poll found nothing.
    pub(super) fn found_nothing(&mut self) {
        self.empty_polls = self.empty_polls.saturating_add(1);
    }

    fn next(&self, armed: bool) -> Option<usize> {
        let front = self.tickets.front()?;
        let released = armed || self.empty_polls >= front.patience;
        let mut seen: Vec<WorkQueue> = Vec::with_capacity(WINDOW);
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

    /// How many completions a poll that asks for `asked` may return: at least one; if `whole`, all there are.
    pub(super) fn most_of(&self, asked: usize, whole: bool) -> usize {
        if asked <= 1 || whole {
            return asked;
        }
        let mut random = self.shuffle.draw(Choice::Batch, &[self.ordinal.into(), self.taken]);
        if !random.chance(self.shuffle.share_ppm(Choice::Batch)) {
            return asked;
        }
        1 + random.below(asked as u64) as usize
    }

    /// Whether the batch of a program that takes one completion after the other ends here, though there may
    /// be more. Once for each completion: a program may ask for the next one again and again, and is to
    /// find it.
    pub(super) fn ends_batch(&mut self, whole: bool) -> bool {
        let ends = self.ended_after != self.taken && self.most_of(2, whole) < 2;
        if ends {
            self.ended_after = self.taken;
        }
        ends
    }

    /// The oldest completion of the ring was overwritten.
    pub(crate) fn overwritten(&mut self) {
        self.tickets.pop_front();
    }

    /// The queue is armed: whether that makes an event at once. Such an event tells of a completion that came
    /// since the last arming, which the program may have polled already. Never twice in succession, so that a
    /// program which arms again after an event comes to sleep.
    pub(super) fn armed(&mut self) -> bool {
        self.release();
        self.armings += 1;
        let mut random = self.shuffle.draw(Choice::SpuriousEvent, &[self.ordinal.into(), self.armings]);
        let drawn = random.chance(self.shuffle.share_ppm(Choice::SpuriousEvent));
        let came = std::mem::replace(&mut self.added_at_arming, self.added) != self.added;
        self.fired_at_arming = drawn && came && !self.fired_at_arming;
        self.fired_at_arming
    }

    /// The queue pair `qpn` goes or begins anew. The ring keeps the completions for which `keep` says so,
    /// asked from front to back.
    pub(crate) fn retain(&mut self, qpn: u32, mut keep: impl FnMut() -> bool) {
        self.counts.retain(|_, (_, of)| *of != qpn);
        self.tickets.retain(|_| keep());
    }
}

#[cfg(test)]
#[path = "held_completions_tests.rs"]
mod tests;

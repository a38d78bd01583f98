//! What a completion queue holds, under its lock: completions in a ring, and what is to be told of them.

use std::collections::VecDeque;

use fnv::FnvHashMap;
use pumice_ground::error::ResourceError;
use pumice_transport::types::{WcStatus, WorkCompletion};

use crate::held_completions::{HeldCompletions, WorkQueue};
use crate::paced_events::PacedEvents;

/// What became of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the queue.
    Stored,
    /// It is in the queue, and its event comes then, or before.
    EventBy(u64),
    /// It is in the queue, and the oldest one is lost, the first one of this queue.
    Overwrote,
    /// It is lost: the queue was full, and is in error from now on.
    Overrun,
    /// It is lost: the queue was in error already.
    InError,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) ring: VecDeque<Entry>,
    pub(super) depth: usize,
    pub(super) armed: Armed,
    /// An entry of the ring would fire an arming for solicited ones. It may have been polled, unless all
    /// have.
    pub(super) solicited: bool,
    /// What a shuffled queue knows about the ring.
    pub(super) held: Option<Box<HeldCompletions>>,
    /// Completions that made an event.
    pub(super) events: u64,
    /// What a fault plan does to events.
    pub(super) paced: Option<Box<PacedEvents>>,
    /// Of a queue that loses its oldest completion where another one fails.
    pub(super) lost: Option<Box<Lost>>,
}

/// What the completions that were overwritten would have told.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Entries of send queues that polling them would have freed, by the numbers of the queue pairs. The next
    /// completion of the send queue frees them, as adapters free all entries up to that of a completion.
    released: FnvHashMap<u32, u32>,
    /// There was one.
    is_told: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) completion: WorkCompletion,
    /// Entries of the queue pair's send queue that polling this completion frees.
    pub(super) released: u32,
    /// When it was added; 0 without a clock.
    pub(super) at_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    No,
    Solicited,
    Any,
}

impl State {
    /// Of an empty queue.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn new(depth: usize) -> Result<State, ResourceError> {
        let mut ring = VecDeque::new();
        reserve(&mut ring, depth)?;
        Ok(State {
            ring,
            depth,
            armed: Armed::No,
            solicited: false,
            held: None,
            events: 0,
            paced: None,
            lost: None,
        })
    }

    /// Gives it another depth, at least that of what waits.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn resize(&mut self, depth: usize) -> Result<(), ResourceError> {
        reserve(&mut self.ring, depth)?;
        if let Some(held) = &mut self.held {
            held.reserve(depth)?;
        }
        self.depth = depth;
        self.ring.shrink_to(depth);
        Ok(())
    }

    /// Puts the next completion there, and says what polling it frees.
    #[inline]
    pub(super) fn take_into(&mut self, slot: &mut WorkCompletion) -> Option<u32> {
        if self.held.is_some() || self.lost.is_some() {
            let entry = self.take()?;
            *slot = entry.completion;
            return Some(entry.released);
        }
        // An entry is long: the usual way copies it once.
        let Entry { completion, released, .. } = self.ring.front()?;
        *slot = *completion;
        let released = *released;
        self.ring.pop_front();
        Some(released)
    }

    /// The next completion; the oldest one, unless the schedule is shuffled.
    pub(super) fn take(&mut self) -> Option<Entry> {
        let taken = if self.held.is_some() { self.take_shuffled() } else { self.ring.pop_front() };
        if self.lost.is_some() { taken.map(|entry| self.with_lost(entry)) } else { taken }
    }

    /// Makes room in a full queue that does not fail.
    #[cold]
    pub(super) fn overwrite(&mut self) -> Option<Pushed> {
        let lost = self.lost.as_mut()?;
        let oldest = self.ring.pop_front();
        if let Some(held) = &mut self.held {
            held.overwritten();
        }
        if let Some(Entry { completion, released: released @ 1.., .. }) = oldest {
            let before = lost.released.entry(completion.qp_num).or_default();
            *before = before.wrapping_add(released);
        }
        let was_told = std::mem::replace(&mut lost.is_told, true);
        Some(if was_told { Pushed::Stored } else { Pushed::Overwrote })
    }

    /// A completion that frees what lost ones before it would have freed.
    #[cold]
    fn with_lost(&mut self, mut entry: Entry) -> Entry {
        if !entry.completion.opcode.is_recv()
            && let Some(lost) = &mut self.lost
        {
            let before = lost.released.remove(&entry.completion.qp_num).unwrap_or_default();
            entry.released = entry.released.wrapping_add(before);
        }
        entry
    }

    fn take_shuffled(&mut self) -> Option<Entry> {
        let index = self.held.as_mut()?.take(self.armed != Armed::No)?;
        self.ring.remove(index)
    }

    /// Notes what was added to the end of the ring. A program that learns of a failure finds everything that
    /// came before it.
    #[cold]
    pub(super) fn hold(&mut self, ordinal: u32, completion: &WorkCompletion) {
        let receives = completion.opcode.is_recv();
        let failed = completion.status != WcStatus::Success;
        let urgent = failed || self.armed != Armed::No;
        if let Some(held) = &mut self.held {
            held.added(WorkQueue { ordinal, receives }, completion.qp_num, urgent, failed);
        }
    }

    /// A poll found none.
    pub(super) fn found_nothing(&mut self) {
        if let Some(held) = &mut self.held {
            held.found_nothing();
        }
    }

    /// Removes the completions of a queue pair.
    pub(super) fn remove_of(&mut self, qpn: u32) {
        if let Some(held) = &mut self.held {
            let mut entries = self.ring.iter();
            held.retain(qpn, || entries.next().is_some_and(|entry| entry.completion.qp_num != qpn));
        }
        self.ring.retain(|entry| entry.completion.qp_num != qpn);
        if let Some(lost) = &mut self.lost {
            lost.released.remove(&qpn);
        }
    }
}

/// Makes room for `depth` entries, so that adding one never allocates.
fn reserve(ring: &mut VecDeque<Entry>, depth: usize) -> Result<(), ResourceError> {
    ring.try_reserve_exact(depth.saturating_sub(ring.len())).map_err(|_| {
        ResourceError::no_memory(format!("a completion queue of {depth} entries; ask for fewer"))
    })
}

//! The contents of a completion queue, under its lock: completions in a ring, and the notes for events about
//! them.

use std::collections::VecDeque;

use fnv::FnvHashMap;
use pumice_platform::error::ResourceError;
use pumice_transport::types::{WcStatus, WorkCompletion};

use crate::objects::held_completions::{HeldCompletions, WorkQueueId};
use crate::objects::paced_events::PacedEvents;

/// Result of adding a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum CqPushOutcome {
    /// The completion is in the queue.
    Stored,
    /// The completion is in the queue, and its event comes at this time, or before.
    EventBy(u64),
    /// The completion is in the queue, and the oldest one is lost, the first one of this queue.
    Overwrote,
    /// The completion is lost: the queue was full, and is in error from now on.
    Overrun,
    /// The completion is lost: the queue was in error already.
    InError,
}

#[derive(Debug)]
pub(super) struct CqState {
    pub(super) ring: VecDeque<QueuedCompletion>,
    pub(super) depth: usize,
    pub(super) armed: ArmedFor,
    /// An entry of the ring would fire an arming for solicited ones. It may have been polled, unless all
    /// have.
    pub(super) solicited: bool,
    /// State of a shuffled queue.
    pub(super) held: Option<Box<HeldCompletions>>,
    /// Number of completions that made an event.
    pub(super) events: u64,
    /// State of a fault plan's delays of events.
    pub(super) paced: Option<Box<PacedEvents>>,
    /// State of a queue that loses its oldest completion where another one fails.
    pub(super) lost: Option<Box<Overwritten>>,
}

/// The effects that polling the overwritten completions would have had.
#[derive(Debug, Default)]
pub(super) struct Overwritten {
    /// Entries of send queues that polling them would have freed, by the numbers of the queue pairs. The next
    /// completion of the send queue frees them, as adapters free all entries up to that of a completion.
    released: FnvHashMap<u32, u32>,
    /// A completion was lost.
    is_reported: bool,
}

#[derive(Debug)]
pub(super) struct QueuedCompletion {
    pub(super) completion: WorkCompletion,
    /// Number of entries of the queue pair's send queue that polling this completion frees.
    pub(super) released: u32,
    /// Time at which it was added; 0 without a clock.
    pub(super) at_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArmedFor {
    No,
    Solicited,
    Any,
}

impl CqState {
    /// Creates the state of an empty queue.
    ///
    /// # Errors
    /// Fails with `NoMemory`.
    pub(super) fn new(depth: usize) -> Result<CqState, ResourceError> {
        let mut ring = VecDeque::new();
        reserve(&mut ring, depth)?;
        Ok(CqState {
            ring,
            depth,
            armed: ArmedFor::No,
            solicited: false,
            held: None,
            events: 0,
            paced: None,
            lost: None,
        })
    }

    /// Changes the depth, to at least the number of completions that wait.
    ///
    /// # Errors
    /// Fails with `NoMemory`.
    pub(super) fn resize(&mut self, depth: usize) -> Result<(), ResourceError> {
        reserve(&mut self.ring, depth)?;
        if let Some(held) = &mut self.held {
            held.reserve(depth)?;
        }
        self.depth = depth;
        self.ring.shrink_to(depth);
        Ok(())
    }

    /// Moves the next completion to `slot`, and returns how many entries polling it frees.
    #[inline]
    pub(super) fn take_into(&mut self, slot: &mut WorkCompletion) -> Option<u32> {
        if self.held.is_some() || self.lost.is_some() {
            let entry = self.take()?;
            *slot = entry.completion;
            return Some(entry.released);
        }
        // An entry is long: the usual path copies it once.
        let QueuedCompletion { completion, released, .. } = self.ring.front()?;
        *slot = *completion;
        let released = *released;
        self.ring.pop_front();
        Some(released)
    }

    /// Takes the next completion; the oldest one, unless the schedule is shuffled.
    pub(super) fn take(&mut self) -> Option<QueuedCompletion> {
        let taken = if self.held.is_some() { self.take_shuffled() } else { self.ring.pop_front() };
        if self.lost.is_some() { taken.map(|entry| self.with_lost(entry)) } else { taken }
    }

    /// Makes room in a full queue that does not fail.
    #[cold]
    pub(super) fn overwrite(&mut self) -> Option<CqPushOutcome> {
        let lost = self.lost.as_mut()?;
        let oldest = self.ring.pop_front();
        if let Some(held) = &mut self.held {
            held.overwritten();
        }
        if let Some(QueuedCompletion { completion, released: released @ 1.., .. }) = oldest {
            let before = lost.released.entry(completion.qp_num).or_default();
            *before = before.wrapping_add(released);
        }
        let was_reported = std::mem::replace(&mut lost.is_reported, true);
        Some(if was_reported { CqPushOutcome::Stored } else { CqPushOutcome::Overwrote })
    }

    /// Returns a completion that also frees what lost ones before it would have freed.
    #[cold]
    fn with_lost(&mut self, mut entry: QueuedCompletion) -> QueuedCompletion {
        if !entry.completion.opcode.is_recv()
            && let Some(lost) = &mut self.lost
        {
            let before = lost.released.remove(&entry.completion.qp_num).unwrap_or_default();
            entry.released = entry.released.wrapping_add(before);
        }
        entry
    }

    fn take_shuffled(&mut self) -> Option<QueuedCompletion> {
        let index = self.held.as_mut()?.take(self.armed != ArmedFor::No)?;
        self.ring.remove(index)
    }

    /// Notes a completion that was added to the end of the ring. A program that learns of a failure finds
    /// everything that came before it.
    #[cold]
    pub(super) fn hold(&mut self, ordinal: u32, completion: &WorkCompletion) {
        let receives = completion.opcode.is_recv();
        let failed = completion.status != WcStatus::Success;
        let urgent = failed || self.armed != ArmedFor::No;
        if let Some(held) = &mut self.held {
            held.added(WorkQueueId { ordinal, receives }, completion.qp_num, urgent, failed);
        }
    }

    /// Notes that a poll found nothing.
    pub(super) fn found_nothing(&mut self) {
        if let Some(held) = &mut self.held {
            held.found_nothing();
        }
    }

    /// Makes the completions of a queue pair free nothing any more.
    pub(super) fn orphan(&mut self, qpn: u32) {
        for entry in self.ring.iter_mut().filter(|entry| entry.completion.qp_num == qpn) {
            entry.released = 0;
        }
        if let Some(lost) = &mut self.lost {
            lost.released.remove(&qpn);
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
fn reserve(ring: &mut VecDeque<QueuedCompletion>, depth: usize) -> Result<(), ResourceError> {
    ring.try_reserve_exact(depth.saturating_sub(ring.len())).map_err(|_| {
        ResourceError::no_memory(format!("a completion queue of {depth} entries; ask for fewer"))
    })
}

//! Completions that come later than their work was done, and delayed events of completion channels.
//!
//! Delayed completions are queued for each work queue, so no completion overtakes another one of its work
//! queue. An asynchronous event of a queue pair comes after its completions: it ends their wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pumice_faults::{CompletionVerdict, TriggerGate};
use pumice_transport::host::QpContext;

use super::made::PendingCompletion;

/// Most completions that may be delayed on one device; further ones come at once.
const MAX_WAITING: usize = 1 << 16;
/// Interval in which the triggers of delayed completions are checked, in ns.
const CHECK_INTERVAL_NS: u64 = 200_000;

/// The identity of a work queue: the ordinal of its queue pair, and whether it is the receive queue.
pub(crate) type WorkQueue = (u32, bool);

/// The delayed completions and events of a device.
#[derive(Default)]
pub(crate) struct DelayQueue {
    queues: BTreeMap<WorkQueue, VecDeque<DelayedCompletion>>,
    count: usize,
    /// The decision about the next completion of this work queue, which follows at once.
    pub(crate) next: Option<(WorkQueue, CompletionVerdict)>,
    /// Completion queues with a delayed event, each with the time by which it comes.
    events: BTreeSet<(u64, u32)>,
    /// For the ordinal of a queue pair, the time in ns before which no request of its send queue completes,
    /// because datagrams wait for later ones until then.
    held_sends: BTreeMap<u32, u64>,
    /// The earliest time at which a completion or an event may be due, in ns.
    due_ns: Option<u64>,
}

/// A delayed completion.
pub(crate) struct DelayedCompletion {
    pub(crate) qp: QpContext,
    pub(crate) made: PendingCompletion,
    pub(crate) due_ns: u64,
    pub(crate) until: Vec<TriggerGate>,
}

impl DelayQueue {
    /// Reports whether a completion or an event is delayed.
    pub(crate) fn any(&self) -> bool {
        self.count > 0 || !self.events.is_empty()
    }

    pub(crate) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Takes the next completion that is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<DelayedCompletion> {
        let is_due =
            |waiting: &VecDeque<DelayedCompletion>| waiting.front().is_some_and(|one| one.is_due(now_ns));
        let (key, _) = self.queues.iter().find(|(_, waiting)| is_due(waiting))?;
        self.pop(*key)
    }

    pub(crate) fn pop(&mut self, key: WorkQueue) -> Option<DelayedCompletion> {
        let waiting = self.queues.get_mut(&key)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.queues.remove(&key);
        }
        self.count -= usize::from(first.is_some());
        first
    }

    /// Takes the decision about a completion that is made now.
    pub(crate) fn verdict_of(&mut self, queue: WorkQueue) -> CompletionVerdict {
        self.next.take_if(|(of, _)| *of == queue).map(|(_, verdict)| verdict).unwrap_or_default()
    }

    /// Reports whether a completion has to wait: for the one before it on its work queue, or because of a
    /// decision.
    pub(crate) fn has_to_wait(&self, queue: WorkQueue, delay_ns: u64, until: &[TriggerGate]) -> bool {
        let is_held = delay_ns > 0 || !until.iter().all(TriggerGate::is_open);
        self.queues.contains_key(&queue) || (is_held && self.count < MAX_WAITING)
    }

    /// Holds the completions of a queue pair's send queue until `until_ns`.
    pub(crate) fn hold_sends(&mut self, ordinal: u32, until_ns: u64) {
        self.held_sends.insert(ordinal, until_ns);
    }

    /// Returns how long a completion of a work queue is held from `now_ns` on, in ns.
    pub(crate) fn held_ns(&mut self, queue: WorkQueue, now_ns: u64) -> u64 {
        let (ordinal, is_recv) = queue;
        let Some(until_ns) = self.held_sends.get(&ordinal).copied().filter(|_| !is_recv) else { return 0 };
        if until_ns <= now_ns {
            self.forget_sends(ordinal);
        }
        until_ns.saturating_sub(now_ns)
    }

    /// Returns the ordinals of the queue pairs whose completions of send requests are held.
    pub(crate) fn held_sends(&self) -> Vec<u32> {
        self.held_sends.keys().copied().collect()
    }

    /// Forgets until when completions of a queue pair's send queue are held.
    pub(crate) fn forget_sends(&mut self, ordinal: u32) {
        self.held_sends.remove(&ordinal);
    }

    /// Delays an event of the completion queue with this table index until `due_ns`.
    pub(crate) fn push_event(&mut self, cq: u32, due_ns: u64) {
        self.events.insert((due_ns, cq));
        self.due_ns = Some(self.due_ns.map_or(due_ns, |known_ns| known_ns.min(due_ns)));
    }

    /// Takes the next completion queue with an event that is due.
    pub(crate) fn pop_event(&mut self, now_ns: u64) -> Option<u32> {
        let (_, cq) = self.events.first().copied().filter(|(due_ns, _)| *due_ns <= now_ns)?;
        self.events.pop_first();
        Some(cq)
    }

    pub(crate) fn push(&mut self, queue: WorkQueue, waiting: DelayedCompletion, now_ns: u64) {
        self.queues.entry(queue).or_default().push_back(waiting);
        self.count += 1;
        self.note_due(now_ns);
    }

    pub(crate) fn note_due(&mut self, now_ns: u64) {
        let due =
            |waiting: &VecDeque<DelayedCompletion>| waiting.front().map(|one| one.next_check_ns(now_ns));
        let event_ns = self.events.first().map(|(due_ns, _)| *due_ns);
        self.due_ns = self.queues.values().filter_map(due).chain(event_ns).min();
    }
}

impl DelayedCompletion {
    fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns <= now_ns && self.until.iter().all(TriggerGate::is_open)
    }

    /// Returns when to check again whether the completion is due.
    fn next_check_ns(&self, now_ns: u64) -> u64 {
        let is_open = self.until.iter().all(TriggerGate::is_open);
        if is_open { self.due_ns } else { self.due_ns.max(now_ns.saturating_add(CHECK_INTERVAL_NS)) }
    }
}

//! Completions that come later than their work was done, and events of completion channels that do.
//!
//! What waits, waits in a queue for each work queue, so no completion overtakes another one of its work
//! queue. An asynchronous event of a queue pair comes after its completions: it ends their wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pumice_faults::{Gate, Verdict};
use pumice_transport::host::QpContext;

use super::made::Made;

/// Completions that may wait on one device; more come at once.
const MOST_WAITING: usize = 1 << 16;
/// How often it is looked whether what a completion waits for has happened.
const LOOK_NS: u64 = 200_000;

/// A work queue: the ordinal of its queue pair, and whether it is that of receives.
pub(crate) type WorkQueue = (u32, bool);

/// The completions that wait, and the events.
#[derive(Default)]
pub(crate) struct Delayed {
    queues: BTreeMap<WorkQueue, VecDeque<DelayedCompletion>>,
    count: usize,
    /// What happens to the next completion of this work queue, which follows at once.
    pub(crate) next: Option<(WorkQueue, Verdict)>,
    /// Completion queues with an event that comes by then.
    events: BTreeSet<(u64, u32)>,
    /// When the first of all this is due, or may be.
    due_ns: Option<u64>,
}

/// A completion that waits.
pub(crate) struct DelayedCompletion {
    pub(crate) qp: QpContext,
    pub(crate) made: Made,
    pub(crate) due_ns: u64,
    pub(crate) until: Vec<Gate>,
}

impl Delayed {
    /// Whether something waits.
    pub(crate) fn any(&self) -> bool {
        self.count > 0 || !self.events.is_empty()
    }

    pub(crate) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The next completion whose time has come.
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

    /// What happens to a completion that is made now.
    pub(crate) fn verdict_of(&mut self, queue: WorkQueue) -> Verdict {
        self.next.take_if(|(of, _)| *of == queue).map(|(_, verdict)| verdict).unwrap_or_default()
    }

    /// Whether a completion has to wait: for the one before it on its work queue, or by what was decided.
    pub(crate) fn has_to_wait(&self, queue: WorkQueue, delay_ns: u64, until: &[Gate]) -> bool {
        let is_held = delay_ns > 0 || !until.iter().all(Gate::is_open);
        self.queues.contains_key(&queue) || (is_held && self.count < MOST_WAITING)
    }

    /// An event of the completion queue with this index of the table comes by then.
    pub(crate) fn push_event(&mut self, cq: u32, due_ns: u64) {
        self.events.insert((due_ns, cq));
        self.due_ns = Some(self.due_ns.map_or(due_ns, |known_ns| known_ns.min(due_ns)));
    }

    /// The next completion queue with an event whose time has come.
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
        let due = |waiting: &VecDeque<DelayedCompletion>| waiting.front().map(|one| one.look_ns(now_ns));
        let event_ns = self.events.first().map(|(due_ns, _)| *due_ns);
        self.due_ns = self.queues.values().filter_map(due).chain(event_ns).min();
    }
}

impl DelayedCompletion {
    fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns <= now_ns && self.until.iter().all(Gate::is_open)
    }

    /// When it is worth looking again.
    fn look_ns(&self, now_ns: u64) -> u64 {
        let is_open = self.until.iter().all(Gate::is_open);
        if is_open { self.due_ns } else { self.due_ns.max(now_ns.saturating_add(LOOK_NS)) }
    }
}

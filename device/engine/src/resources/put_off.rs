//! Completions that rules of a fault plan change or put off.
//!
//! What is put off waits in a queue for each work queue, so no completion overtakes another one of its work
//! queue. An asynchronous event of a queue pair comes after its completions: it ends their wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pumice_faults::{CompletionEventFaults, CompletionFaults, Gate, Verdict};
use pumice_ground::clock::Clock;
use pumice_objects::paced_events::EventPacer;
use pumice_transport::host::QpContext;

use super::made::Made;

/// Completions that may wait on one device; more come at once.
const MOST_WAITING: usize = 1 << 16;
/// How often it is looked whether what a completion waits for has happened.
const LOOK_NS: u64 = 200_000;

/// A work queue: the ordinal of its queue pair, and whether it is that of receives.
pub(super) type WorkQueue = (u32, bool);

/// What a plan does to completions.
pub(super) struct PutOff {
    pub(super) faults: Box<CompletionFaults>,
    pub(super) event_faults: Arc<CompletionEventFaults>,
    clock: Clock,
    queues: BTreeMap<WorkQueue, VecDeque<Waiting>>,
    count: usize,
    /// What happens to the next completion of this work queue, which follows at once.
    pub(super) next: Option<(WorkQueue, Verdict)>,
    /// Completion queues with an event that comes by then.
    events: BTreeSet<(u64, u32)>,
    /// When the first of all this is due, or may be.
    due_ns: Option<u64>,
}

/// A completion that waits.
pub(super) struct Waiting {
    pub(super) qp: QpContext,
    pub(super) made: Made,
    pub(super) due_ns: u64,
    pub(super) until: Vec<Gate>,
}

impl PutOff {
    pub(super) fn new(
        faults: Box<CompletionFaults>,
        event_faults: Arc<CompletionEventFaults>,
        clock: Clock,
    ) -> PutOff {
        let (queues, events) = (BTreeMap::new(), BTreeSet::new());
        PutOff { faults, event_faults, clock, queues, count: 0, next: None, events, due_ns: None }
    }

    /// Whether there are rules, or something waits.
    pub(super) fn is_needed(&self) -> bool {
        let has_rules = self.faults.is_active() || self.event_faults.is_active();
        has_rules || self.count > 0 || !self.events.is_empty()
    }

    /// What completion queues ask about their events, if there are rules about them.
    pub(super) fn pacer(&self) -> Option<EventPacer> {
        let is_active = self.event_faults.is_active();
        is_active.then(|| EventPacer { faults: Arc::clone(&self.event_faults), clock: self.clock.clone() })
    }

    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The next completion whose time has come.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Waiting> {
        let is_due = |waiting: &VecDeque<Waiting>| waiting.front().is_some_and(|one| one.is_due(now_ns));
        let (key, _) = self.queues.iter().find(|(_, waiting)| is_due(waiting))?;
        self.pop(*key)
    }

    pub(super) fn pop(&mut self, key: WorkQueue) -> Option<Waiting> {
        let waiting = self.queues.get_mut(&key)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.queues.remove(&key);
        }
        self.count -= usize::from(first.is_some());
        first
    }

    /// What happens to a completion that is made now.
    pub(super) fn verdict_of(&mut self, queue: WorkQueue) -> Verdict {
        self.next.take_if(|(of, _)| *of == queue).map(|(_, verdict)| verdict).unwrap_or_default()
    }

    /// Whether a completion has to wait: for the one before it on its work queue, or by what a rule says.
    pub(super) fn has_to_wait(&self, queue: WorkQueue, delay_ns: u64, until: &[Gate]) -> bool {
        let is_held = delay_ns > 0 || !until.iter().all(Gate::is_open);
        self.queues.contains_key(&queue) || (is_held && self.count < MOST_WAITING)
    }

    /// An event of the completion queue in this place of the table comes by then.
    pub(super) fn push_event(&mut self, cq: u32, due_ns: u64) {
        self.events.insert((due_ns, cq));
        self.due_ns = Some(self.due_ns.map_or(due_ns, |known_ns| known_ns.min(due_ns)));
    }

    /// The next completion queue with an event whose time has come.
    pub(super) fn pop_event(&mut self, now_ns: u64) -> Option<u32> {
        let (_, cq) = self.events.first().copied().filter(|(due_ns, _)| *due_ns <= now_ns)?;
        self.events.pop_first();
        Some(cq)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(super) fn push(&mut self, queue: WorkQueue, waiting: Waiting, now_ns: u64) {
        self.queues.entry(queue).or_default().push_back(waiting);
        self.count += 1;
        self.note_due(now_ns);
    }

    pub(super) fn note_due(&mut self, now_ns: u64) {
        let due = |waiting: &VecDeque<Waiting>| waiting.front().map(|one| one.look_ns(now_ns));
        let event_ns = self.events.first().map(|(due_ns, _)| *due_ns);
        self.due_ns = self.queues.values().filter_map(due).chain(event_ns).min();
    }
}

impl Waiting {
    fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns <= now_ns && self.until.iter().all(Gate::is_open)
    }

    /// When it is worth looking again.
    fn look_ns(&self, now_ns: u64) -> u64 {
        let is_open = self.until.iter().all(Gate::is_open);
        if is_open { self.due_ns } else { self.due_ns.max(now_ns.saturating_add(LOOK_NS)) }
    }
}

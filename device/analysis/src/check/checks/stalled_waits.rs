//! Threads that wait for what does not come, and the threads that take the completions of each queue.

use pumice_calls::Call;
use pumice_platform::call_stack::Stack;
use pumice_transport::types::WorkCompletion;
use smallvec::SmallVec;

use crate::check::context::{CheckContext, FindingParts, own_thread, related};
use crate::check::kind::{COMPLETIONS_TAKEN_ELSEWHERE, FindingKind, LOST_WAKEUP, WAITS_IN_VAIN};
use crate::check::notified::{Check, ExplainedFailure, PerQueue, QueueName};
use crate::waits::{StalledWait, WaitTarget};

/// Maximum number of threads that are recorded for a queue.
const MAX_TAKERS: usize = 4;

/// The threads that poll completion queues, and those that have taken completions from them.
#[derive(Debug, Default)]
pub(super) struct Takers {
    queues: PerQueue<TakenQueue>,
    /// Queues that a thread has polled after another thread had taken a completion.
    shared: SmallVec<[u32; 4]>,
}

#[derive(Debug, Default)]
struct TakenQueue {
    /// Number of the thread that polled last; 0 for none.
    poller: u64,
    /// Number of the thread that took a completion last; 0 for none.
    taker: u64,
    /// True if another thread has polled since the taker took a completion.
    is_awaited: bool,
    /// Call sites at which each thread took its first completion.
    call_sites: SmallVec<[(u64, Stack); 1]>,
}

impl Takers {
    pub(super) fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
        match of {
            Some(QueueName::Cq(handle)) => self.shared.retain(|shared| *shared != handle),
            Some(_) => {}
            None => self.shared.clear(),
        }
    }

    /// Handles a poll of a queue by the calling thread.
    pub(super) fn polls(&mut self, context: &CheckContext, handle: u32) {
        let thread = own_thread();
        let queue = self.queues.of(QueueName::Cq(handle));
        if queue.poller == thread {
            return;
        }
        queue.poller = thread;
        let is_shared = queue.taker != 0 && queue.taker != thread;
        queue.is_awaited |= is_shared;
        if is_shared && context.cqs.contains_key(&handle) && !self.shared.contains(&handle) {
            self.shared.push(handle);
        }
    }

    /// Handles a completion of a queue that the calling thread takes.
    pub(super) fn takes(&mut self, context: &mut CheckContext, handle: u32) {
        let thread = own_thread();
        let queue = self.queues.of(QueueName::Cq(handle));
        queue.is_awaited = false;
        if queue.taker == thread {
            return;
        }
        queue.taker = thread;
        let is_known = queue.call_sites.iter().any(|(known, _)| *known == thread);
        if !is_known && queue.call_sites.len() < MAX_TAKERS {
            let here = context.here();
            self.queues.of(QueueName::Cq(handle)).call_sites.push((thread, here));
        }
    }

    /// Returns the kind and text of a finding about a thread that waits although nothing can complete. If the
    /// only such queue is one whose last completion another thread has taken, the finding names that thread.
    fn explain(&self, context: &CheckContext, found: FindingParts) -> (&'static FindingKind, FindingParts) {
        let is_it = |handle: &&u32| {
            let is_over = context.cqs.get(*handle).is_some_and(|cq| cq.expected == 0 && cq.unpolled == 0);
            is_over && self.queues.get(QueueName::Cq(**handle)).is_some_and(|queue| queue.is_awaited)
        };
        let mut all = self.shared.iter().filter(is_it);
        let (Some(handle), None) = (all.next(), all.next()) else { return (&WAITS_IN_VAIN, found) };
        let (Some(cq), Some(queue)) = (context.cqs.get(handle), self.queues.get(QueueName::Cq(*handle)))
        else {
            return (&WAITS_IN_VAIN, found);
        };
        let call_site = queue.call_sites.iter().find(|(thread, _)| *thread == queue.taker);
        let numbers = format!(
            "a thread polls {}, in which nothing can complete any more: another thread, which polls it as \
             well, has taken the last completion",
            cq.name
        );
        let mut related = vec![related(format!("{} was made here", cq.name), &cq.made)];
        if let Some((_, call_site)) = call_site {
            let what = "the other thread takes completions here".to_owned();
            related.insert(0, crate::check::recorded::RelatedCallSite { what, call_site: call_site.clone() });
        }
        let (object, stack) = (cq.name.clone(), found.stack);
        (&COMPLETIONS_TAKEN_ELSEWHERE, FindingParts { object, numbers, stack, related })
    }
}

/// Number of looks, one each 25 ms, until a wait for others is reported: two seconds, after which a program
/// that waits only for a while goes on.
const SETTLE_ROUNDS: u32 = 80;

/// The check for waits in vain, where no other finding is about the same queue.
#[derive(Debug, Default)]
pub(super) struct StalledWaits {
    /// Finding that is not reported yet, and for how many looks.
    held: Option<HeldFinding>,
    is_ended_by_signal: bool,
    takers: Takers,
}

#[derive(Debug)]
struct HeldFinding {
    kind: &'static FindingKind,
    found: FindingParts,
    rounds: u32,
}

impl Check for StalledWaits {
    fn forget(&mut self, of: Option<QueueName>) {
        self.takers.forget(of);
    }

    fn cq_polled(&mut self, context: &mut CheckContext, cq: u32) {
        self.takers.polls(context, cq);
    }

    fn polled(&mut self, context: &mut CheckContext, cq: u32, _: &WorkCompletion) {
        self.takers.takes(context, cq);
    }

    fn forked(&mut self, _: &mut CheckContext) {
        *self = StalledWaits::default();
    }

    fn enters(&mut self, _: &mut CheckContext, call: Call, _: u64) {
        if self.held.is_some() && !call.polls() {
            self.held = None;
        }
    }

    fn wait_stalled(&mut self, context: &mut CheckContext, stalled_wait: &StalledWait, stack: &Stack) {
        let own = context.own;
        let object = match stalled_wait.about {
            // A thread, and no queue pair.
            WaitTarget::Others(0) => Some("a thread".to_owned()),
            WaitTarget::Request(number) | WaitTarget::Others(number) => {
                context.qps.get(&number).map(|qp| qp.name.clone())
            }
            WaitTarget::Completions(number) => context.cqs.get(&own.handle(number)).map(|cq| cq.name.clone()),
            WaitTarget::Answer(_) | WaitTarget::Rejected(_) => Some("connection".to_owned()),
        };
        let object = object.unwrap_or_else(|| "a thread".to_owned());
        if stalled_wait.is_asleep && report_asleep(context, stalled_wait, stack) {
            return;
        }
        if !context.is_found_of(std::slice::from_ref(&object)) {
            let (numbers, stack) = (stalled_wait.sentence.clone(), stack.clone());
            let found = FindingParts { object, numbers, stack, related: Vec::new() };
            match stalled_wait.about {
                WaitTarget::Others(_) => {
                    let (kind, found) = self.takers.explain(context, found);
                    self.held = Some(HeldFinding { kind, found, rounds: 0 });
                }
                _ => context.found(&WAITS_IN_VAIN, found),
            }
        }
    }

    fn is_ended_by_signal(&mut self, _: &mut CheckContext) {
        self.is_ended_by_signal = true;
    }

    fn settles(&mut self, context: &mut CheckContext, is_over: bool, _: &mut Vec<ExplainedFailure>) {
        let is_ended = is_over && self.is_ended_by_signal;
        if let Some(held) = &mut self.held {
            held.rounds += 1;
        }
        if let Some(HeldFinding { kind, found, .. }) =
            self.held.take_if(|held| is_ended || held.rounds >= SETTLE_ROUNDS)
        {
            context.found(kind, found);
        }
    }
}

/// Reports a thread that sleeps beside completions of a queue that the program has armed; returns false if
/// the wait is of another kind. A thread in poll(2) has no stack that could be read; the call site that armed
/// the queue is the nearest one known.
fn report_asleep(context: &mut CheckContext, stalled_wait: &StalledWait, stack: &Stack) -> bool {
    let WaitTarget::Completions(number) = stalled_wait.about else { return false };
    let Some(cq) = context.cqs.get(&context.own.handle(number)) else { return false };
    if !cq.was_armed || cq.channel == 0 {
        return false;
    }
    let object = cq.name.clone();
    let call_site = if stack.is_unknown() { cq.armed_at.clone() } else { stack.clone() };
    let related = vec![
        related("the queue was armed here", &cq.armed_at),
        related(format!("{object} was made here"), &cq.made),
    ];
    if !context.is_found_of(std::slice::from_ref(&object)) {
        let numbers = stalled_wait.sentence.clone();
        context.found(&LOST_WAKEUP, FindingParts { object, numbers, stack: call_site, related });
    }
    true
}

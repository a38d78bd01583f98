//! The record of the threads that take the completions of each queue.

use pumice_platform::call_stack::Stack;
use smallvec::SmallVec;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::holder::own_thread;
use crate::check::kind::{COMPLETIONS_TAKEN_ELSEWHERE, FindingKind, WAITS_IN_VAIN};
use crate::check::per_queue::{PerQueue, QueueName};

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
    pub(super) fn explain(
        &self,
        context: &CheckContext,
        found: FindingParts,
    ) -> (&'static FindingKind, FindingParts) {
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

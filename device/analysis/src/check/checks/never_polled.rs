//! Completion queues that are never polled.

use crate::check::context::{CheckContext, FindingParts, counted};
use crate::check::kind::COMPLETIONS_NEVER_POLLED;
use crate::check::notified::Check;
use crate::check::queues::Cq;

/// Number of completions after which the program has had time to poll.
const COMPLETIONS_OF_AN_OLD_QUEUE: u64 = 4;

/// The check for queues that get completions and are never polled.
#[derive(Debug, Default)]
pub(super) struct NeverPolled;

impl Check for NeverPolled {
    fn cq_destroyed(&mut self, context: &mut CheckContext, handle: u32) {
        let found = context.cqs.get(&handle).and_then(found_of);
        found.into_iter().for_each(|one| context.found(&COMPLETIONS_NEVER_POLLED, one));
    }

    /// The program might have polled the queue next, so nothing is reported.
    fn is_ended_by_signal(&mut self, context: &mut CheckContext) {
        let is_old = |cq: &&Cq| cq.successes >= COMPLETIONS_OF_AN_OLD_QUEUE;
        let found: Vec<FindingParts> = context.cqs.values().filter(is_old).filter_map(found_of).collect();
        found.into_iter().for_each(|one| context.found(&COMPLETIONS_NEVER_POLLED, one));
    }

    fn ends(&mut self, context: &mut CheckContext) {
        let found: Vec<FindingParts> = context.cqs.values().filter_map(found_of).collect();
        found.into_iter().for_each(|one| context.found(&COMPLETIONS_NEVER_POLLED, one));
    }
}

fn found_of(cq: &Cq) -> Option<FindingParts> {
    if cq.polls > 0 || cq.successes == 0 {
        return None;
    }
    let numbers =
        format!("{} came to {}, and it was never polled", counted(cq.successes, "completion"), cq.name);
    let (object, stack) = (cq.name.clone(), cq.made.clone());
    Some(FindingParts { object, numbers, stack, related: Vec::new() })
}

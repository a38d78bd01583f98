//! A slow way: polls that take one completion of many.

use pumice_transport::types::WorkCompletion;

use super::many::MANY;
use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::POLLS_ONE_AT_A_TIME;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// Number of completions that still wait when a poll has taken one of them.
const SEVERAL: u64 = 4;

/// The check for programs that poll completions one at a time.
#[derive(Debug, Default)]
pub(super) struct SlowPolls {
    queues: PerQueue<PollState>,
}

#[derive(Debug, Default)]
struct PollState {
    /// Number of completions that the last call took.
    taken: u32,
    /// Number of calls that took one of several.
    small_polls: u32,
}

impl Check for SlowPolls {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn polled(&mut self, context: &mut CheckContext, handle: u32, _: &WorkCompletion) {
        if context.checks_performance && context.cqs.contains_key(&handle) {
            let queue = self.queues.of(QueueName::Cq(handle));
            queue.taken = queue.taken.saturating_add(1);
        }
    }

    fn cq_polled(&mut self, context: &mut CheckContext, handle: u32) {
        if !context.checks_performance {
            return;
        }
        let queue = self.queues.of(QueueName::Cq(handle));
        let taken = std::mem::take(&mut queue.taken);
        let Some(cq) = context.cqs.get(&handle).filter(|cq| taken == 1 && cq.unpolled >= SEVERAL) else {
            return;
        };
        queue.small_polls = queue.small_polls.saturating_add(1);
        if queue.small_polls == MANY {
            let object = cq.name.clone();
            let numbers = format!("{MANY} calls took one completion of {object} where {SEVERAL} more waited");
            let stack = context.here();
            context.found(&POLLS_ONE_AT_A_TIME, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}

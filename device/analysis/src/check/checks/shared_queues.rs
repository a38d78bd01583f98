//! Shared receive queues that run empty.

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::SRQ_LIMIT_NEVER_ARMED;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// The check for empty shared receive queues whose limit the program never armed. It reports each queue once.
#[derive(Debug, Default)]
pub(super) struct SharedQueues {
    queues: PerQueue<SrqState>,
}

#[derive(Debug, Default)]
struct SrqState {
    /// The program has posted to the queue.
    was_filled: bool,
    /// Number of messages that found the queue empty after that, and whether one did since a receive was last
    /// posted.
    missed: u64,
    is_empty: bool,
    /// The program has armed the limit of the queue.
    was_armed: bool,
    is_reported: bool,
}

impl Check for SharedQueues {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn srq_limit_armed(&mut self, context: &mut CheckContext, handle: u32) {
        if context.srqs.contains_key(&handle) {
            self.queues.of(QueueName::Srq(handle)).was_armed = true;
        }
    }

    fn srq_was_empty(&mut self, _: &mut CheckContext, handle: u32) {
        let queue = self.queues.of(QueueName::Srq(handle));
        if queue.was_filled {
            queue.missed = queue.missed.saturating_add(1);
            queue.is_empty = true;
        }
    }

    fn srq_filled(&mut self, context: &mut CheckContext, handle: u32) {
        let queue = self.queues.of(QueueName::Srq(handle));
        queue.was_filled = true;
        if std::mem::replace(&mut queue.is_empty, false) && context.checks_performance {
            let stack = context.here();
            queue.report(context, handle, stack);
        }
    }

    fn srq_destroyed(&mut self, context: &mut CheckContext, handle: u32) {
        let queue = self.queues.of(QueueName::Srq(handle));
        if let Some(srq) = context.srqs.get(&handle).filter(|_| queue.is_empty) {
            let made = srq.made.clone();
            queue.report(context, handle, made);
        }
    }
}

impl SrqState {
    fn report(&mut self, context: &mut CheckContext, handle: u32, stack: Stack) {
        if self.was_armed || std::mem::replace(&mut self.is_reported, true) {
            return;
        }
        let Some(srq) = context.srqs.get(&handle) else { return };
        let object = srq.name.clone();
        let numbers = format!(
            "{object} was empty when {} came, and its limit was never armed",
            counted(self.missed, "message")
        );
        let related = vec![related(format!("{object} was made here"), &srq.made)];
        context.found(&SRQ_LIMIT_NEVER_ARMED, FindingParts { object, numbers, stack, related });
    }
}

//! The check for a slow pattern: an event for each completion, where completions follow each other closely.

use pumice_transport::types::WorkCompletion;

use super::many::MANY;
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::EVENT_PER_MESSAGE;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// Longest time, in ns, for [`MANY`] events to be reported. The program would then find the next completion
/// if it polled for a moment.
const WITHIN_NS: u64 = 1_000_000_000;

/// The check for a program that sleeps for each completion. It reports each completion queue once.
#[derive(Debug, Default)]
pub(super) struct SlowEvents {
    queues: PerQueue<ArmedQueue>,
}

#[derive(Debug, Default)]
struct ArmedQueue {
    /// Number of completions that were polled since the last event.
    polled: u32,
    /// Number of events in sequence that brought one completion at most.
    events: u32,
    /// Device time of the first of these events, in ns.
    since_ns: u64,
    is_reported: bool,
}

impl Check for SlowEvents {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn polled(&mut self, context: &mut CheckContext, handle: u32, _: &WorkCompletion) {
        if context.checks_performance && context.cqs.contains_key(&handle) {
            let queue = self.queues.of(QueueName::Cq(handle));
            queue.polled = queue.polled.saturating_add(1);
        }
    }

    fn event_delivered(&mut self, context: &mut CheckContext, handle: u32) {
        if !context.checks_performance || !context.cqs.contains_key(&handle) {
            return;
        }
        let (now_ns, queue) = (context.now_ns, self.queues.of(QueueName::Cq(handle)));
        if std::mem::take(&mut queue.polled) > 1 || queue.events == 0 {
            (queue.events, queue.since_ns) = (0, now_ns);
        }
        queue.events += 1;
        if queue.events < MANY {
            return;
        }
        queue.events = 0;
        let took_ns = now_ns.saturating_sub(queue.since_ns);
        if took_ns > WITHIN_NS || std::mem::replace(&mut queue.is_reported, true) {
            return;
        }
        let stack = context.here();
        let Some(cq) = context.cqs.get(&handle) else { return };
        let object = cq.name.clone();
        let numbers = format!(
            "{MANY} events of {object} brought one completion each, within {} ms: the program slept and was \
             woken for each of them",
            took_ns.div_ceil(1_000_000)
        );
        let related = vec![related(format!("{object} was made here"), &cq.made)];
        context.found(&EVENT_PER_MESSAGE, FindingParts { object, numbers, stack, related });
    }
}

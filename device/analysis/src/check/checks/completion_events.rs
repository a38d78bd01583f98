//! Completion events that are not acknowledged, or acknowledged more often than they came.

use pumice_platform::call_stack::Stack;

use super::unacknowledged_events::PendingAcknowledgements;
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::EVENTS_ACKNOWLEDGED_TWICE;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// The check for completion events that the program has not acknowledged when it ends.
#[derive(Debug, Default)]
pub(super) struct CompletionEvents {
    /// Number of events that the program got and has not acknowledged, and the call site where it got the
    /// first of them.
    unacknowledged: PerQueue<(u64, Stack)>,
}

impl Check for CompletionEvents {
    fn forget(&mut self, of: Option<QueueName>) {
        self.unacknowledged.forget(of);
    }

    fn event_delivered(&mut self, context: &mut CheckContext, handle: u32) {
        let (count, got_at) = self.unacknowledged.of(QueueName::Cq(handle));
        *count = count.saturating_add(1);
        if *count == 1 {
            *got_at = context.here();
        }
    }

    fn events_acknowledged(&mut self, context: &mut CheckContext, handle: u32, acknowledged: u64) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let (count, _) = self.unacknowledged.of(QueueName::Cq(handle));
        let got = std::mem::replace(count, count.saturating_sub(acknowledged));
        if acknowledged > got {
            let object = cq.name.clone();
            let events = if acknowledged == 1 { "1 event" } else { &format!("{acknowledged} events") };
            let numbers = format!(
                "{events} of {object} acknowledged at once, and the program has got {got} that it had not \
                 acknowledged"
            );
            let related = vec![related(format!("{object} was made here"), &cq.made)];
            let stack = context.here();
            context.found(&EVENTS_ACKNOWLEDGED_TWICE, FindingParts { object, numbers, stack, related });
        }
    }

    fn ends(&mut self, context: &mut CheckContext) {
        let left = context.cqs.iter().filter_map(|(handle, cq)| {
            let (count, got_at) = self.unacknowledged.of(QueueName::Cq(*handle)).clone();
            let (object, made, events) = (cq.name.clone(), cq.made.clone(), "completion event");
            (count > 0).then_some(PendingAcknowledgements { object, made, count, events, got_at })
        });
        let left: Vec<PendingAcknowledgements> = left.collect();
        left.into_iter().for_each(|one| one.report(context));
    }
}

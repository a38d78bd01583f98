//! A slow way: completions of all send requests.

use super::many::MANY;
use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::SIGNAL_ON_EVERY_REQUEST;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// Length of the shortest send queue whose requests need not all be signaled.
const LONG_SEND_QUEUE: u32 = 16;

/// The check for programs that ask for a completion of each send request.
#[derive(Debug, Default)]
pub(super) struct SlowSignals {
    /// Numbers of posted and of signaled send requests.
    posted: PerQueue<(u64, u64)>,
}

impl Check for SlowSignals {
    fn forget(&mut self, of: Option<QueueName>) {
        self.posted.forget(of);
    }

    fn send_posted(&mut self, context: &mut CheckContext, number: u32, is_signaled: bool) {
        if !context.checks_performance {
            return;
        }
        let (posted, signaled) = self.posted.of(QueueName::Qp(number));
        *posted = posted.saturating_add(1);
        *signaled = signaled.saturating_add(is_signaled.into());
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let (posted, signaled) = *self.posted.of(QueueName::Qp(number));
        let is_every = posted == signaled && posted >= MANY.into();
        if is_every && qp.capacity.max_send_wr >= LONG_SEND_QUEUE {
            let numbers = format!("all {posted} send requests of {} made completions", qp.name);
            let (object, stack) = (qp.name.clone(), qp.calls.made.clone());
            context.found(
                &SIGNAL_ON_EVERY_REQUEST,
                FindingParts { object, numbers, stack, related: Vec::new() },
            );
        }
    }
}

//! A slow way: short payload that is read from memory.

use super::many::MANY;
use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::SHORT_WITHOUT_INLINE;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// Number of payload bytes that any adapter takes inline.
const SHORT_BYTES: u32 = 64;

/// The check for short payload that the program does not send inline.
#[derive(Debug, Default)]
pub(super) struct SlowPayload {
    counts: PerQueue<u32>,
}

impl Check for SlowPayload {
    fn forget(&mut self, of: Option<QueueName>) {
        self.counts.forget(of);
    }

    fn posted_from_memory(&mut self, context: &mut CheckContext, number: u32, bytes: u32) {
        if !context.checks_performance || !(1..=SHORT_BYTES).contains(&bytes) {
            return;
        }
        let Some(qp) = context.qps.get(&number) else { return };
        let count = self.counts.of(QueueName::Qp(number));
        *count = count.saturating_add(1);
        if *count == MANY {
            let object = qp.name.clone();
            let numbers = format!("{MANY} requests of {object} had {SHORT_BYTES} bytes or fewer, not inline");
            let stack = context.here();
            context
                .found(&SHORT_WITHOUT_INLINE, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}

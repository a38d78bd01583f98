//! Send queues that fill.

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::SEND_QUEUE_NEVER_REAPED;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// The check for full send queues that no completion will free. It reports each queue pair once.
#[derive(Debug, Default)]
pub(super) struct FullQueues {
    is_reported: PerQueue<bool>,
}

impl Check for FullQueues {
    fn forget(&mut self, of: Option<QueueName>) {
        self.is_reported.forget(of);
    }

    fn send_queue_is_full(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let is_hopeless = qp.counts.signaled == 0 && qp.counts.sends_unpolled == 0 && qp.counts.sends > 0;
        if !is_hopeless || std::mem::replace(self.is_reported.of(QueueName::Qp(number)), true) {
            return;
        }
        let (object, sends, room) = (qp.name.clone(), qp.counts.sends, qp.capacity.max_send_wr);
        let numbers = format!(
            "the send queue of {object} has room for {room} requests; {sends} are in it, and none of them \
             will make a completion"
        );
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        let stack = context.here();
        context.found(&SEND_QUEUE_NEVER_REAPED, FindingParts { object, numbers, stack, related });
    }
}

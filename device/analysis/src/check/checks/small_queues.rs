//! Completion queues that are too small for what is posted.

use crate::check::context::{CheckContext, FindingParts, counted, related, waiting};
use crate::check::kind::CQ_TOO_SMALL;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// The check for completion queues on which more will complete than they have room for. It reports each queue
/// once.
#[derive(Debug, Default)]
pub(super) struct SmallQueues {
    is_reported: PerQueue<bool>,
}

impl Check for SmallQueues {
    fn forget(&mut self, of: Option<QueueName>) {
        self.is_reported.forget(of);
    }

    fn send_posted(&mut self, context: &mut CheckContext, qp: u32, is_signaled: bool) {
        if let Some(qp) = context.qps.get(&qp).filter(|_| is_signaled) {
            let cq = qp.send_cq;
            self.look(context, cq);
        }
    }

    fn receive_posted(&mut self, context: &mut CheckContext, qp: u32) {
        if let Some(qp) = context.qps.get(&qp) {
            let cq = qp.recv_cq;
            self.look(context, cq);
        }
    }
}

impl SmallQueues {
    /// Handles a posted request that will complete on this queue.
    fn look(&mut self, context: &mut CheckContext, handle: u32) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let most = cq.expected.saturating_add(cq.unpolled);
        if most <= u64::from(cq.depth) || std::mem::replace(self.is_reported.of(QueueName::Cq(handle)), true)
        {
            return;
        }
        let name = cq.name.clone();
        let numbers = format!(
            "{name} has room for {}; {} will complete on it, and {} in it",
            counted(cq.depth.into(), "completion"),
            counted(cq.expected, "posted request"),
            waiting(cq.unpolled)
        );
        let related = vec![related(format!("{name} was made here"), &cq.made)];
        let stack = context.here();
        context.found(&CQ_TOO_SMALL, FindingParts { object: name, numbers, stack, related });
    }
}

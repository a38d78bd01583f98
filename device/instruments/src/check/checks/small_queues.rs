//! Completion queues that are too small for what is posted.

use crate::check::context::{Context, Found, counted, related, waiting};
use crate::check::kept::{Kept, Of};
use crate::check::kind::CQ_TOO_SMALL;
use crate::check::told::Check;

/// More will complete on a queue than it has room for. It is told once of each queue.
#[derive(Debug, Default)]
pub(super) struct SmallQueues {
    is_told: Kept<bool>,
}

impl Check for SmallQueues {
    fn forget(&mut self, of: Option<Of>) {
        self.is_told.forget(of);
    }

    fn send_posted(&mut self, context: &mut Context, qp: u32, is_signaled: bool) {
        if let Some(qp) = context.qps.get(&qp).filter(|_| is_signaled) {
            let cq = qp.send_cq;
            self.look(context, cq);
        }
    }

    fn receive_posted(&mut self, context: &mut Context, qp: u32) {
        if let Some(qp) = context.qps.get(&qp) {
            let cq = qp.recv_cq;
            self.look(context, cq);
        }
    }
}

impl SmallQueues {
    /// A request was posted that will complete on this queue.
    fn look(&mut self, context: &mut Context, handle: u32) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let most = cq.expected.saturating_add(cq.unpolled);
        if most <= u64::from(cq.depth) || std::mem::replace(self.is_told.of(Of::Cq(handle)), true) {
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
        context.found(&CQ_TOO_SMALL, Found { object: name, numbers, stack, related });
    }
}

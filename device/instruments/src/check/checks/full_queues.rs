//! Send queues that fill.

use crate::check::context::{Context, Found, related};
use crate::check::kept::{Kept, Of};
use crate::check::kind::SEND_QUEUE_NEVER_REAPED;
use crate::check::told::Check;

/// A send queue is full, and no completion will free it. It is told once of each queue pair.
#[derive(Debug, Default)]
pub(super) struct FullQueues {
    is_told: Kept<bool>,
}

impl Check for FullQueues {
    fn forget(&mut self, of: Option<Of>) {
        self.is_told.forget(of);
    }

    fn send_queue_is_full(&mut self, context: &mut Context, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let is_hopeless = qp.signaled == 0 && qp.sends_unpolled == 0 && qp.sends > 0;
        if !is_hopeless || std::mem::replace(self.is_told.of(Of::Qp(number)), true) {
            return;
        }
        let (object, sends, room) = (qp.name.clone(), qp.sends, qp.capacity.max_send_wr);
        let numbers = format!(
            "the send queue of {object} has room for {room} requests; {sends} are in it, and none of them \
             will make a completion"
        );
        let related = vec![related(format!("{object} was made here"), &qp.made)];
        let stack = context.here();
        context.found(&SEND_QUEUE_NEVER_REAPED, Found { object, numbers, stack, related });
    }
}

//! Receives that are posted when messages have already come for them.

use pumice_ground::call_stack::Stack;

use crate::check::context::{Context, Found, related};
use crate::check::kept::{Kept, Of};
use crate::check::kind::RECEIVE_TOO_LATE;
use crate::check::told::Check;

/// Messages without a receive before that is told, and as which share of those received.
const LATE_POSTS: u64 = 4;
const LATE_SHARE: u64 = 8;
/// Stacks of late receives that are told apart for a queue pair.
const LATE_STACKS: u32 = 16;

/// Messages keep coming before the program has posted receives for them.
#[derive(Debug, Default)]
pub(super) struct LateReceives {
    queue_pairs: Kept<QueuePair>,
}

#[derive(Debug, Default)]
struct QueuePair {
    /// Messages that found no receive.
    unready: u64,
    /// One has found none since a receive was last posted.
    is_late: bool,
    late_posts: u64,
    /// Stacks that were told.
    told: u32,
}

impl Check for LateReceives {
    fn forget(&mut self, of: Option<Of>) {
        self.queue_pairs.forget(of);
    }

    fn found_no_receive(&mut self, _: &mut Context, number: u32) {
        let own = self.queue_pairs.of(Of::Qp(number));
        own.unready = own.unready.saturating_add(1);
        own.is_late = true;
    }

    fn receive_posted(&mut self, context: &mut Context, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(Of::Qp(number));
        if !std::mem::replace(&mut own.is_late, false) {
            return;
        }
        own.late_posts = own.late_posts.saturating_add(1);
        if own.late_posts < LATE_POSTS || own.late_posts.saturating_mul(LATE_SHARE) < qp.received {
            return;
        }
        if own.told >= LATE_STACKS {
            let object = qp.name.clone();
            return context.found_again(&RECEIVE_TOO_LATE, &object);
        }
        own.told += 1;
        let unready = own.unready;
        let stack = context.here();
        tell(context, number, unready, stack);
    }

    fn qp_destroyed(&mut self, context: &mut Context, number: u32) {
        let Some(made) = context.qps.get(&number).map(|qp| qp.made.clone()) else { return };
        let own = self.queue_pairs.of(Of::Qp(number));
        if own.unready >= LATE_POSTS && own.told == 0 && own.is_late {
            tell(context, number, own.unready, made);
        }
    }
}

fn tell(context: &mut Context, number: u32, unready: u64, stack: Stack) {
    let Some(qp) = context.qps.get(&number) else { return };
    let numbers = format!(
        "{unready} messages came to {} ({}) without a receive, {} were received",
        qp.name, qp.service, qp.received
    );
    let related = vec![related(format!("{} was made here", qp.name), &qp.made)];
    let object = qp.name.clone();
    context.found(&RECEIVE_TOO_LATE, Found { object, numbers, stack, related });
}

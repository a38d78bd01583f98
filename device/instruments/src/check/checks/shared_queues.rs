//! Shared receive queues that run empty.

use pumice_ground::call_stack::Stack;

use crate::check::context::{Context, Found, counted, related};
use crate::check::kept::{Kept, Of};
use crate::check::kind::SRQ_LIMIT_NEVER_ARMED;
use crate::check::told::Check;

/// A shared receive queue was empty, and the program had never armed its limit. It is told once of each.
#[derive(Debug, Default)]
pub(super) struct SharedQueues {
    queues: Kept<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The program has posted to it.
    was_filled: bool,
    /// Messages that found it empty after that, and whether one did since a receive was last posted.
    missed: u64,
    is_empty: bool,
    /// The program has armed its limit.
    was_armed: bool,
    is_told: bool,
}

impl Check for SharedQueues {
    fn forget(&mut self, of: Option<Of>) {
        self.queues.forget(of);
    }

    fn srq_limit_armed(&mut self, context: &mut Context, handle: u32) {
        if context.srqs.contains_key(&handle) {
            self.queues.of(Of::Srq(handle)).was_armed = true;
        }
    }

    fn srq_was_empty(&mut self, _: &mut Context, handle: u32) {
        let queue = self.queues.of(Of::Srq(handle));
        if queue.was_filled {
            queue.missed = queue.missed.saturating_add(1);
            queue.is_empty = true;
        }
    }

    fn srq_filled(&mut self, context: &mut Context, handle: u32) {
        let queue = self.queues.of(Of::Srq(handle));
        queue.was_filled = true;
        if std::mem::replace(&mut queue.is_empty, false) && context.looks_for_slow {
            let stack = context.here();
            queue.tell(context, handle, stack);
        }
    }

    fn srq_destroyed(&mut self, context: &mut Context, handle: u32) {
        let queue = self.queues.of(Of::Srq(handle));
        if let Some(srq) = context.srqs.get(&handle).filter(|_| queue.is_empty) {
            let made = srq.made.clone();
            queue.tell(context, handle, made);
        }
    }
}

impl Queue {
    fn tell(&mut self, context: &mut Context, handle: u32, stack: Stack) {
        if self.was_armed || std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let Some(srq) = context.srqs.get(&handle) else { return };
        let object = srq.name.clone();
        let numbers = format!(
            "{object} was empty when {} came, and its limit was never armed",
            counted(self.missed, "message")
        );
        let related = vec![related(format!("{object} was made here"), &srq.made)];
        context.found(&SRQ_LIMIT_NEVER_ARMED, Found { object, numbers, stack, related });
    }
}

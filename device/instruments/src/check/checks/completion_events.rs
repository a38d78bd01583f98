//! Completion events that are not acknowledged, or more often than they came.

use pumice_ground::call_stack::Stack;

use super::events_left::Left;
use crate::check::context::{Context, Found, related};
use crate::check::kept::{Kept, Of};
use crate::check::kind::EVENTS_ACKNOWLEDGED_TWICE;
use crate::check::told::Check;

/// The program has not acknowledged completion events when it ends.
#[derive(Debug, Default)]
pub(super) struct CompletionEvents {
    /// Events that the program got and has not acknowledged, and where it got the first of them.
    unacknowledged: Kept<(u64, Stack)>,
}

impl Check for CompletionEvents {
    fn forget(&mut self, of: Option<Of>) {
        self.unacknowledged.forget(of);
    }

    fn event_delivered(&mut self, context: &mut Context, handle: u32) {
        let (count, got_at) = self.unacknowledged.of(Of::Cq(handle));
        *count = count.saturating_add(1);
        if *count == 1 {
            *got_at = context.here();
        }
    }

    fn events_acknowledged(&mut self, context: &mut Context, handle: u32, acknowledged: u64) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let (count, _) = self.unacknowledged.of(Of::Cq(handle));
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
            context.found(&EVENTS_ACKNOWLEDGED_TWICE, Found { object, numbers, stack, related });
        }
    }

    fn ends(&mut self, context: &mut Context) {
        let left = context.cqs.iter().filter_map(|(handle, cq)| {
            let (count, got_at) = self.unacknowledged.of(Of::Cq(*handle)).clone();
            let (object, made, events) = (cq.name.clone(), cq.made.clone(), "completion event");
            (count > 0).then_some(Left { object, made, count, events, got_at })
        });
        let left: Vec<Left> = left.collect();
        left.into_iter().for_each(|one| one.tell(context));
    }
}

//! Asynchronous events that are not acknowledged.

use std::collections::BTreeMap;

use pumice_platform::call_stack::Stack;

use super::unacknowledged_events::PendingAcknowledgements;
use crate::check::context::CheckContext;
use crate::check::notified::Check;

/// Number of objects with unacknowledged events that are tracked; further objects are not checked.
const MAX_OBJECTS: usize = 4096;

/// The check for asynchronous events that the program has not acknowledged when it ends.
#[derive(Debug, Default)]
pub(super) struct AsyncEvents {
    /// Number of events that the program got and has not acknowledged, by the addresses of their objects, and
    /// the call site where it got the first of them.
    unacknowledged: BTreeMap<u64, (u64, Stack)>,
}

impl Check for AsyncEvents {
    fn forked(&mut self, _: &mut CheckContext) {
        self.unacknowledged.clear();
    }

    fn async_event_got(&mut self, context: &mut CheckContext, address: u64) {
        if context.objects.at(address).is_none() {
            return;
        }
        let stack = context.here();
        let known = &mut self.unacknowledged;
        if known.len() < MAX_OBJECTS || known.contains_key(&address) {
            let (count, _) = known.entry(address).or_insert((0, stack));
            *count = count.saturating_add(1);
        }
    }

    fn async_event_acknowledged(&mut self, _: &mut CheckContext, address: u64) {
        if let Some((count, _)) = self.unacknowledged.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.unacknowledged.remove(&address);
            }
        }
    }

    fn ends(&mut self, context: &mut CheckContext) {
        for (address, (count, got_at)) in std::mem::take(&mut self.unacknowledged) {
            if let Some(object) = context.objects.at(address) {
                let (object, made, events) = (object.name(), object.made.clone(), "asynchronous event");
                PendingAcknowledgements { object, made, count, events, got_at }.report(context);
            }
        }
    }
}

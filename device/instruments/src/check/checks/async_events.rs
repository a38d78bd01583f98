//! Asynchronous events that are not acknowledged.

use std::collections::BTreeMap;

use pumice_ground::call_stack::Stack;

use super::events_left::Left;
use crate::check::context::Context;
use crate::check::told::Check;

/// Objects with events that are not acknowledged; of others nothing is said.
const MAX_OBJECTS: usize = 4096;

/// The program has not acknowledged asynchronous events when it ends.
#[derive(Debug, Default)]
pub(super) struct AsyncEvents {
    /// Those that the program got and has not acknowledged, by the addresses of their objects, and where it
    /// got the first of them.
    unacknowledged: BTreeMap<u64, (u64, Stack)>,
}

impl Check for AsyncEvents {
    fn forked(&mut self, _: &mut Context) {
        self.unacknowledged.clear();
    }

    fn async_event_got(&mut self, context: &mut Context, address: u64) {
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

    fn async_event_acknowledged(&mut self, _: &mut Context, address: u64) {
        if let Some((count, _)) = self.unacknowledged.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.unacknowledged.remove(&address);
            }
        }
    }

    fn ends(&mut self, context: &mut Context) {
        for (address, (count, got_at)) in std::mem::take(&mut self.unacknowledged) {
            if let Some(object) = context.objects.at(address) {
                let (object, made, events) = (object.name(), object.made.clone(), "asynchronous event");
                Left { object, made, count, events, got_at }.tell(context);
            }
        }
    }
}

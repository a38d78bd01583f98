//! Calls that wait until the program has acknowledged events.

use crate::check::context::{Context, Found, related};
use crate::check::kind::EVENTS_NOT_ACKNOWLEDGED;
use crate::check::told::Check;

/// The program destroys an object, and has not acknowledged events of it for a second.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls;

impl Check for WaitingCalls {
    fn waits_for_acknowledgements(
        &mut self,
        context: &mut Context,
        address: u64,
        count: u64,
        events: &str,
        remedy: &str,
    ) {
        let stack = context.here();
        let Some(object) = context.objects.at(address) else { return };
        let (made, object) = (object.made.clone(), object.name());
        let numbers = format!(
            "events of {object} that are not acknowledged: {count} {events} ({remedy}); the call blocks \
             until they are"
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        context.found(&EVENTS_NOT_ACKNOWLEDGED, Found { object, numbers, stack, related });
    }
}

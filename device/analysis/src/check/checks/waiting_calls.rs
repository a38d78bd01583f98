//! Calls that wait until the program has acknowledged events.

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::EVENTS_NOT_ACKNOWLEDGED;
use crate::check::notified::Check;

/// The check for programs that destroy an object, and have not acknowledged events of it for a second.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls;

impl Check for WaitingCalls {
    fn waits_for_acknowledgements(
        &mut self,
        context: &mut CheckContext,
        address: u64,
        count: u64,
        events: &str,
        remedy: &str,
    ) {
        let stack = context.here();
        let known = context.objects.at(address).map(|object| (object.made.clone(), object.name()));
        // An object that a call of librdmacm made for an identifier is none of the objects that the program
        // has made.
        let (made, object) = known.unzip();
        let object = object.unwrap_or_else(|| "an object that librdmacm made".to_owned());
        let numbers = format!(
            "events of {object} that are not acknowledged: {count} {events} ({remedy}); the call blocks \
             until they are"
        );
        let related = made.iter().map(|made| related(format!("{object} was made here"), made)).collect();
        context.found(&EVENTS_NOT_ACKNOWLEDGED, FindingParts { object, numbers, stack, related });
    }
}

//! Reports of events that are not acknowledged at the end of the process.

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::EVENTS_NOT_ACKNOWLEDGED;

/// Unacknowledged events of one object.
pub(super) struct PendingAcknowledgements {
    pub(super) object: String,
    /// Call site that made the object.
    pub(super) made: Stack,
    pub(super) count: u64,
    /// Name of the kind of events, as in "completion event".
    pub(super) events: &'static str,
    /// Call site where the program got the first of them.
    pub(super) got_at: Stack,
}

impl PendingAcknowledgements {
    pub(super) fn report(self, context: &mut CheckContext) {
        let PendingAcknowledgements { object, made, count, events, got_at } = self;
        let numbers = format!(
            "{} of {object}, got here, is not acknowledged at the end of the process: the object cannot be \
             destroyed",
            counted(count, events)
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        context.found(&EVENTS_NOT_ACKNOWLEDGED, FindingParts { object, numbers, stack: got_at, related });
    }
}

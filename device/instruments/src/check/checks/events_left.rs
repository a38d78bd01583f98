//! What is said of events that are not acknowledged at the end of the process.

use pumice_ground::call_stack::Stack;

use crate::check::context::{Context, Found, counted, related};
use crate::check::kind::EVENTS_NOT_ACKNOWLEDGED;

/// Events of one object.
pub(super) struct Left {
    pub(super) object: String,
    /// Where that was made.
    pub(super) made: Stack,
    pub(super) count: u64,
    /// As in "completion event".
    pub(super) events: &'static str,
    /// Where the program got the first of them.
    pub(super) got_at: Stack,
}

impl Left {
    pub(super) fn tell(self, context: &mut Context) {
        let Left { object, made, count, events, got_at } = self;
        let numbers = format!(
            "{} of {object}, got here, is not acknowledged at the end of the process: the object cannot be \
             destroyed",
            counted(count, events)
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        context.found(&EVENTS_NOT_ACKNOWLEDGED, Found { object, numbers, stack: got_at, related });
    }
}

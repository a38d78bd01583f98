//! Programs that poll memory in order to notice that a WRITE has come.

use super::words::name_of;
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::WRITE_POLLED_IN_MEMORY;
use crate::check::orders::RequestOrdering;

impl RequestOrdering {
    pub(super) fn check_spinning(&mut self, context: &mut CheckContext, number: u32) {
        let (notified, Some(switches)) = (self.notified, context.callbacks.switches) else { return };
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if qp.echo.length_bytes == 0 || !qp.echo.posted(notified, switches) {
            return;
        }
        let (turns, bytes) = (qp.echo.turns, qp.echo.length_bytes);
        let stack = context.here();
        let object = name_of(context, number);
        let made = context.qps.get(&number).map(|qp| qp.calls.made.clone()).unwrap_or_default();
        let numbers = format!(
            "{turns} times in sequence the program posted on {object} right after a WRITE had come to it \
             (the last of {bytes} bytes); no completion and no system call had told it"
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        context.found(&WRITE_POLLED_IN_MEMORY, FindingParts { object, numbers, stack, related });
    }
}

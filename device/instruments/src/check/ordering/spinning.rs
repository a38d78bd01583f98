//! Programs that look at memory in order to know that a WRITE has come.

use super::words::name_of;
use crate::check::context::{Context, Found, related};
use crate::check::kind::WRITE_POLLED_IN_MEMORY;
use crate::check::orders::Ordering;

impl Ordering {
    pub(super) fn look_at_spinning(&mut self, context: &mut Context, number: u32) {
        let (told, Some(switches)) = (self.told, context.means.switches) else { return };
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if qp.echo.length_bytes == 0 || !qp.echo.posted(told, switches) {
            return;
        }
        let (turns, bytes) = (qp.echo.turns, qp.echo.length_bytes);
        let stack = context.here();
        let object = name_of(context, number);
        let made = context.qps.get(&number).map(|qp| qp.made.clone()).unwrap_or_default();
        let numbers = format!(
            "{turns} times in sequence the program posted on {object} right after a WRITE had come to it \
             (the last of {bytes} bytes); no completion and no system call had told it"
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        context.found(&WRITE_POLLED_IN_MEMORY, Found { object, numbers, stack, related });
    }
}

//! Programs that look at memory in order to know that a WRITE has come.

use crate::check::checker::{Checker, Found, related};
use crate::check::kind::WRITE_POLLED_IN_MEMORY;
use crate::check::orders::Switches;

impl Checker {
    /// `switches` tells how often the calling thread has waited. Without it, programs that look at memory in
    /// order to know of WRITEs are not found.
    #[must_use]
    pub fn with_switches(mut self, switches: Switches) -> Checker {
        self.ordering.switches = Some(switches);
        self
    }

    pub(super) fn look_at_spinning(&mut self, number: u32) {
        let (told, Some(switches)) = (self.ordering.told, self.ordering.switches) else { return };
        let Some(qp) = self.ordering.qps.get_mut(&number) else { return };
        if qp.echo.length_bytes == 0 || !qp.echo.posted(told, switches) {
            return;
        }
        let (turns, bytes) = (qp.echo.turns, qp.echo.length_bytes);
        let stack = self.here();
        let object = self.name_of(number);
        let made = self.qps.get(&number).map(|qp| qp.made.clone()).unwrap_or_default();
        let numbers = format!(
            "{turns} times in sequence the program posted on {object} right after a WRITE had come to it \
             (the last of {bytes} bytes); no completion and no system call had told it"
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        self.found(&WRITE_POLLED_IN_MEMORY, Found { object, numbers, stack, related });
    }
}

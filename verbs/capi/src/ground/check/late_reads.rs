//! Private data of events of rdma_cm, which a program may read after it has acknowledged the event.

use std::panic::catch_unwind;

use pumice_device::check::holds_checker;
use pumice_device::memory::{guard_copies, sees_faults};
use pumice_device::outside::late_reads::Page;

use super::state::{is_on, tell};
use super::{stack, writer};

/// Private data in a page of its own.
pub(crate) struct LatePage(Page);

impl LatePage {
    /// Private data that the program is about to get. None: programs are not checked, or there is no page.
    pub(crate) fn with(said: &[u8]) -> Option<LatePage> {
        if !is_on() {
            return None;
        }
        guard_copies();
        let page = Page::take(is_read)?;
        page.fill(said);
        Some(LatePage(page))
    }

    /// Where the program finds it.
    pub(crate) fn address(&self) -> usize {
        self.0.address()
    }

    /// The program acknowledges the event at this address, whose name this is.
    pub(crate) fn give_back(self, event: usize, name: &str) {
        tell(|checker| checker.private_data_given_back(event as u64, name, self.0.number()));
        self.0.give_back(sees_faults());
    }
}

/// In a handler of signals, in the middle of the program's own code or of a call that was given the page.
/// Such a call has neither the checker nor the writer then.
fn is_read(page: usize, instruction: usize, its_stack: usize) {
    if holds_checker() {
        return;
    }
    // A panic, which its hook has reported, must not reach the handler.
    let _ = catch_unwind(|| {
        let addresses = stack::of_a_fault(instruction as u64, its_stack as u64);
        tell(|checker| checker.private_data_read(page, &addresses));
        writer::write_now();
    });
}

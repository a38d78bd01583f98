//! Private data of events of rdma_cm, which a program may wrongly read after it has acknowledged the event.

use std::panic::catch_unwind;

use pumice_device::check::holds_checker;
use pumice_device::memory::{catches_faults, guard_copies};
use pumice_device::outside::late_reads::WatchedPage;

use super::writer;
use crate::call_sites::stack;
use crate::call_sites::state::{is_on, with_checker};

/// Private data in a page of its own.
pub(crate) struct LatePage(WatchedPage);

impl LatePage {
    /// Copies private data that the program is about to get into a page. Returns `None` if programs are not
    /// checked, or if there is no page.
    pub(crate) fn with(data: &[u8]) -> Option<LatePage> {
        if !is_on() {
            return None;
        }
        guard_copies();
        let page = WatchedPage::take(is_read)?;
        page.fill(data);
        Some(LatePage(page))
    }

    /// Returns the address for the program.
    pub(crate) fn address(&self) -> usize {
        self.0.address()
    }

    /// Gives the page back, because the program acknowledges the event at this address, which has this name.
    pub(crate) fn give_back(self, event: usize, name: &str) {
        with_checker(|checker| checker.private_data_given_back(event as u64, name, self.0.number()));
        self.0.give_back(catches_faults());
    }
}

/// Handles a read, in a signal handler, in the middle of the program's own code or of a call that was given
/// the page. Such a call holds neither the checker nor the writer then.
fn is_read(page: usize, instruction: usize, its_stack: usize) {
    if holds_checker() {
        return;
    }
    // A panic, which its hook has reported, must not reach the handler.
    let _ = catch_unwind(|| {
        let addresses = stack::fault_stack(instruction as u64, its_stack as u64);
        with_checker(|checker| checker.private_data_read(page, &addresses));
        writer::write_now();
    });
}

//! Reports of waits that will never end.

use pumice_device::platform::printable::printable;
use pumice_device::waits::{StalledWait, Waits};

use crate::check;
use crate::log::print_always;
use crate::waits::connected_at;

/// Beginning of the messages.
const BEGIN: &str = "waits in vain: ";

/// Reports such a wait.
pub(super) fn report(stalled_wait: &StalledWait) {
    let is_unknown = stalled_wait.stack.is_empty() && stalled_wait.is_of_connection();
    let stack = if is_unknown { connected_at() } else { stalled_wait.stack.clone() };
    if check::is_on() {
        return check::wait_stalled(stalled_wait, &stack);
    }
    print_always(&format!("{BEGIN}{}", stalled_wait.sentence));
    check::call_site_lines(&stack).iter().for_each(|frame| print_always(frame));
}

/// Stores the reports about these devices that still hold, which are printed again when the process is ended.
/// If programs are checked, findings contain them, and their summary comes last.
pub(super) fn still_holds<'a>(devices: impl Iterator<Item = &'a Waits>) {
    if check::is_on() {
        return;
    }
    let sentences = devices.flat_map(Waits::reported);
    let lines: String = sentences
        .map(|sentence| format!("pumice: the program is ended while it {BEGIN}{}\n", printable(&sentence)))
        .collect();
    check::set_last_message(&lines);
}

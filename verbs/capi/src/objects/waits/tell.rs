//! How waits in vain are told.

use pumice_device::ground::printable::printable;
use pumice_device::waits::{Vain, Waits};

use crate::ground::check;
use crate::ground::log::print_always;
use crate::ground::waits::connected_at;

/// What the sentences begin with.
const BEGIN: &str = "waits in vain: ";

/// Tells of one.
pub(super) fn tell(vain: &Vain) {
    let is_unknown = vain.stack.is_empty() && vain.is_of_connection();
    let stack = if is_unknown { connected_at() } else { vain.stack.clone() };
    if check::is_on() {
        return check::waits_in_vain(vain, &stack);
    }
    print_always(&format!("{BEGIN}{}", vain.sentence));
    check::place_of(&stack).iter().for_each(|frame| print_always(frame));
}

/// What was told of these devices still holds, and is said again when the process is ended.
pub(super) fn still_holds<'a>(devices: impl Iterator<Item = &'a Waits>) {
    let sentences = devices.flat_map(Waits::told);
    let lines: String = sentences
        .map(|sentence| format!("pumice: the program is ended while it {BEGIN}{}\n", printable(&sentence)))
        .collect();
    check::says_last(&lines);
}

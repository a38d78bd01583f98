//! Calls that wait until the program has acknowledged the events of an object.

use std::time::Duration;

use pumice_calls::Call;
use pumice_device::settings::Log;

use super::log::log_at;
use super::waits::{Waiting, stays};

/// When the log says that a call waits.
const UNTIL_SAID: Duration = Duration::from_secs(2);

/// What a call waits for.
pub(crate) struct Acknowledgements<'a> {
    /// The call.
    pub(crate) call: Call,
    /// The call of the program that acknowledges.
    pub(crate) by: Call,
    /// The address of the object.
    pub(crate) address: usize,
    /// How many are left.
    pub(crate) left: &'a dyn Fn() -> u64,
    /// Waits for so long; true: none is left.
    pub(crate) wait_for: &'a dyn Fn(Duration) -> bool,
}

impl Acknowledgements<'_> {
    /// Waits, for ever if need be, as libibverbs does: a thread of the program may still look at an event.
    /// After a while it says so. `wait`: waits for ever. No lock may be held.
    pub(crate) fn wait(&self, wait: impl FnOnce()) {
        if (self.wait_for)(UNTIL_SAID) {
            return;
        }
        let (Acknowledgements { call, by, address, .. }, left) = (self, (self.left)());
        let events = if left == 1 { "1 event".to_owned() } else { format!("{left} events") };
        log_at(Log::Error, || {
            format!(
                "{call} waits, as libibverbs' does, until the program has called {by} for {events} that it \
                 has got of the object at {address:#x}"
            )
        });
        let _stays = stays(Waiting::Acknowledges { call: *call, by: *by, events: left });
        wait();
    }
}

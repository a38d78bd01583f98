//! Calls that wait until the program has acknowledged the events of an object.

use std::time::Duration;

use pumice_calls::Call;
use pumice_device::settings::LogLevel;

use crate::log::log_at;
use crate::waits::{ThreadWait, blocked};

/// Time after which the log reports a waiting call.
const LOG_AFTER: Duration = Duration::from_secs(2);

/// A wait until the program has acknowledged the events of an object.
pub(crate) struct AcknowledgementWait<'a> {
    /// Call that waits.
    pub(crate) call: Call,
    /// Call with which the program acknowledges.
    pub(crate) by: Call,
    /// Address of the object.
    pub(crate) address: usize,
    /// Returns the number of events that are not acknowledged.
    pub(crate) left: &'a dyn Fn() -> u64,
    /// Waits for a time; returns true if all events are acknowledged.
    pub(crate) wait_for: &'a dyn Fn(Duration) -> bool,
}

impl AcknowledgementWait<'_> {
    /// Waits without a limit, as libibverbs does, because a thread of the program may still read an event.
    /// After a while it logs that it waits. `wait` waits for ever. The caller must hold no lock.
    pub(crate) fn wait(&self, wait: impl FnOnce()) {
        if (self.wait_for)(LOG_AFTER) {
            return;
        }
        let (AcknowledgementWait { call, by, address, .. }, left) = (self, (self.left)());
        let events = if left == 1 { "1 event".to_owned() } else { format!("{left} events") };
        log_at(LogLevel::Error, || {
            format!(
                "{call} waits, as libibverbs' does, until the program has called {by} for {events} that it \
                 has got of the object at {address:#x}"
            )
        });
        let _blocked = blocked(ThreadWait::Acknowledges { call: *call, by: *by, events: left });
        wait();
    }
}

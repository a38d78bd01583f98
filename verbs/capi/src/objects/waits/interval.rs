//! The interval at which the thread checks the devices.

use std::time::Duration;

use crate::gate;
use crate::waits;

/// Interval while the device makes progress.
const PERIOD: Duration = Duration::from_millis(250);
/// Interval while the device makes none, and posted requests may complete.
const IDLE_PERIOD: Duration = Duration::from_millis(500);
/// Number of idle checks after which calls of the program wake the thread, so that a program that polls an
/// empty queue does not do so all the time; and number of idle checks after which the thread sleeps.
const IDLE_CHECKS: (u32, u32) = (8, 9);

/// The current interval of the thread.
pub(super) struct WatchInterval {
    /// Interval; `None` if it sleeps until it is stirred.
    period: Option<Duration>,
    /// Number of checks in sequence at which no thread could be waiting.
    idle: u32,
}

impl WatchInterval {
    pub(super) const fn new() -> WatchInterval {
        WatchInterval { period: Some(PERIOD), idle: 0 }
    }

    /// Sleeps for the interval. Returns whether another process asks what the threads wait for.
    pub(super) fn wait_for_wake(&mut self) -> bool {
        let woken = waits::wait_for_wake(self.period);
        if woken.is_woken {
            self.idle = 0;
        }
        woken.is_queried
    }

    /// Sets the next interval after a check. `is_idle` means that no thread can be waiting, `is_at_rest` that
    /// the device makes no progress.
    pub(super) fn next(&mut self, is_idle: bool, is_at_rest: bool) {
        self.idle = if is_idle { self.idle.saturating_add(1) } else { 0 };
        waits::set_wake_on_call(self.idle >= IDLE_CHECKS.0);
        if self.idle == IDLE_CHECKS.0 || self.idle == 0 {
            gate::refresh_watch();
        }
        self.period = match is_at_rest {
            _ if self.idle >= IDLE_CHECKS.1 => None,
            true => Some(IDLE_PERIOD),
            false => Some(PERIOD),
        };
    }
}

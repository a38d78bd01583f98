//! Waiting for asynchronous events.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use pumice_device::port::wait_readable;

use super::calls::called;
use super::{AsyncEvent, Device};
use crate::ground::error::Result;

impl Device {
    /// Waits for an asynchronous event: a queue pair's failure, an SRQ's limit, a change of the GID table.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn async_event(&self, timeout: Duration) -> Result<AsyncEvent> {
        let events = self.hca().async_events();
        let attempt = || {
            let taken = events.try_event()?;
            let event = AsyncEvent { event: taken.event, element: taken.element };
            taken.ack();
            Some(event)
        };
        let descriptor = events.as_fd().as_raw_fd();
        // A failing poll(2) turns this into polling, which still ends in time.
        let sleep = |left| drop(wait_readable(&[descriptor], None, Some(left)));
        called(self, "ibv_get_async_event", || self.wait("asynchronous event", timeout, 1, attempt, sleep))
    }
}

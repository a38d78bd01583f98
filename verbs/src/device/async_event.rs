//! Waiting for asynchronous events.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use pumice_calls::Call;
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
        let attempt = || self.try_async_event();
        let descriptor = self.hca().async_events().as_fd().as_raw_fd();
        // A failing poll(2) turns this into polling, which still ends in time.
        let sleep = |left| drop(wait_readable(&[descriptor], None, Some(left)));
        called(self, Call::ibv_get_async_event, || {
            self.wait("asynchronous event", timeout, 1, attempt, sleep)
        })
    }

    /// The oldest asynchronous event, if one waits. No rule of a fault plan is about it: those about
    /// `ibv_get_async_event` are about [`Device::async_event`].
    pub fn try_async_event(&self) -> Option<AsyncEvent> {
        let taken = self.hca().async_events().try_event()?;
        let event = AsyncEvent { event: taken.event, element: taken.element };
        taken.ack();
        Some(event)
    }
}

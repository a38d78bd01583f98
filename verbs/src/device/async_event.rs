//! Waiting for asynchronous events.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::port::wait_readable;

use super::calls::gated_call;
use super::{AsyncEvent, Device};
use crate::error::Result;

impl Device {
    /// Waits for an asynchronous event: a queue pair's failure, an SRQ's limit, a change of the GID table.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn async_event(&self, timeout: Duration) -> Result<AsyncEvent> {
        let attempt = || self.try_async_event();
        let descriptor = self.hca().async_events().as_fd().as_raw_fd();
        // If poll(2) fails, the wait becomes polling, which still ends in time.
        let sleep = |left| drop(wait_readable(&[descriptor], None, Some(left)));
        gated_call(self, Call::ibv_get_async_event, || {
            self.wait("asynchronous event", timeout, 1, attempt, sleep)
        })
    }

    /// Takes the oldest asynchronous event, if there is one. Rules of fault plans do not apply to it: those
    /// for `ibv_get_async_event` apply to [`Device::async_event`].
    pub fn try_async_event(&self) -> Option<AsyncEvent> {
        let taken = self.hca().async_events().try_event()?;
        let event = AsyncEvent { event: taken.event, element: taken.element };
        taken.ack();
        Some(event)
    }
}

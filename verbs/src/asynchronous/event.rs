//! Futures for events of channels and devices.

use std::os::fd::{AsFd, BorrowedFd};

use pumice_calls::Call;

use super::readiness::Readiness;
use crate::device::calls::gated_call;
use crate::device::{AsyncEvent, Device};
use crate::error::Result;
use crate::objects::completion::{CompletionChannel, CompletionEvent};

/// A completion channel whose events are awaited: for queues that a program arms and polls itself.
#[derive(Debug)]
pub struct AsyncCompletionChannel {
    channel: CompletionChannel,
    readiness: Readiness,
}

impl AsyncCompletionChannel {
    /// Creates a channel whose events are awaited.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available.
    pub fn new(channel: CompletionChannel) -> Result<AsyncCompletionChannel> {
        let readiness = Readiness::new(channel.device(), channel.as_fd())?;
        Ok(AsyncCompletionChannel { channel, readiness })
    }

    /// Returns the channel.
    pub fn channel(&self) -> &CompletionChannel {
        &self.channel
    }

    /// Waits for the next event of an armed queue.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn event(&self) -> Result<CompletionEvent> {
        gated_call(self.channel.device(), Call::ibv_get_cq_event, || Ok(()))?;
        self.readiness.until("completion event", |_| self.channel.try_event()).await
    }
}

/// The asynchronous events of a device, awaited.
#[derive(Debug)]
pub struct AsyncEvents {
    device: Device,
    readiness: Readiness,
}

impl AsyncEvents {
    /// Creates the stream of asynchronous events of this device.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available.
    pub fn new(device: &Device) -> Result<AsyncEvents> {
        let readiness = Readiness::new(device, device.hca().async_events().as_fd())?;
        Ok(AsyncEvents { device: device.clone(), readiness })
    }

    /// Waits for the next event: a queue pair's failure, an SRQ's limit, a change of the GID table.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn event(&self) -> Result<AsyncEvent> {
        gated_call(&self.device, Call::ibv_get_async_event, || Ok(()))?;
        self.readiness.until("asynchronous event", |_| self.device.try_async_event()).await
    }
}

impl AsFd for AsyncEvents {
    /// Returns a descriptor that is readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.hca().async_events().as_fd()
    }
}

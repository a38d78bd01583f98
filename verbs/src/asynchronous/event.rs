//! Futures for events of channels and devices.

use std::os::fd::{AsFd, BorrowedFd};

use pumice_calls::Call;

use super::readiness::Readiness;
use crate::device::calls::called;
use crate::device::{AsyncEvent, Device};
use crate::ground::error::Result;
use crate::objects::completion::{CompletionChannel, CompletionEvent};

/// A completion channel whose events are awaited: for queues that a program arms and polls itself.
#[derive(Debug)]
pub struct AsyncCompletionChannel {
    channel: CompletionChannel,
    readiness: Readiness,
}

impl AsyncCompletionChannel {
    /// Awaits events of this channel.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn new(channel: CompletionChannel) -> Result<AsyncCompletionChannel> {
        let readiness = Readiness::new(channel.device(), channel.as_fd())?;
        Ok(AsyncCompletionChannel { channel, readiness })
    }

    /// The channel.
    pub fn channel(&self) -> &CompletionChannel {
        &self.channel
    }

    /// The next event of an armed queue.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn event(&self) -> Result<CompletionEvent> {
        called(self.channel.device(), Call::ibv_get_cq_event, || Ok(()))?;
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
    /// Awaits events of this device.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn new(device: &Device) -> Result<AsyncEvents> {
        let readiness = Readiness::new(device, device.hca().async_events().as_fd())?;
        Ok(AsyncEvents { device: device.clone(), readiness })
    }

    /// The next event: a queue pair's failure, an SRQ's limit, a change of the GID table.
    ///
    /// # Errors
    /// `Stalled`, `Os`.
    pub async fn event(&self) -> Result<AsyncEvent> {
        called(&self.device, Call::ibv_get_async_event, || Ok(()))?;
        self.readiness.until("asynchronous event", |_| self.device.try_async_event()).await
    }
}

impl AsFd for AsyncEvents {
    /// Readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.hca().async_events().as_fd()
    }
}

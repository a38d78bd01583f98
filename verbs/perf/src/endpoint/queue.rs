//! A completion queue of one end, which its user polls or sleeps on.

use std::time::Duration;

use pumice_verbs::{CompletionChannel, CompletionQueue, Device, Notify, WcStatus, WorkCompletion};

use super::first_failure::FirstFailure;
use crate::error::{PerfError, Result, of_device};

/// A completion queue and the channel that wakes its user.
pub(super) struct CompletionPoller {
    pub(super) cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    armed: bool,
    first_failure: FirstFailure,
}

impl CompletionPoller {
    /// Creates the queue, with a channel if its user will sleep.
    pub(super) fn new(
        device: &Device,
        depth: usize,
        events: bool,
        first_failure: &FirstFailure,
    ) -> Result<CompletionPoller> {
        let depth = u32::try_from(depth).map_err(of_device)?;
        let channel = if events { Some(device.completion_channel().map_err(of_device)?) } else { None };
        let cq = match &channel {
            Some(channel) => channel.completion_queue(depth, 0),
            None => device.completion_queue(depth),
        };
        Ok(CompletionPoller {
            cq: cq.map_err(of_device)?,
            channel,
            armed: false,
            first_failure: first_failure.clone(),
        })
    }

    /// Takes completions, which must be successful; a poll that finds none drives the device.
    #[inline]
    pub(super) fn poll(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        let count = self.cq.poll(out);
        let done = out.get(..count).unwrap_or_default();
        if done.iter().all(|completion| completion.status == WcStatus::Success) {
            return Ok(count);
        }
        Err(PerfError::Device(self.first_failure.sentence(done)))
    }

    /// Takes completions as [`poll`](CompletionPoller::poll) does, but sleeps for up to `limit` while there
    /// are none.
    pub(super) fn wait(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        if let Some(channel) = &self.channel {
            if !self.armed {
                self.cq.arm(Notify::Any).map_err(of_device)?;
                self.armed = true;
            }
            // Completions that came before arming do not wake the channel.
            if self.cq.is_empty() {
                if channel.wait(limit).is_err() {
                    return Ok(0);
                }
                self.armed = false;
            }
        }
        if self.cq.is_empty() { Ok(0) } else { self.poll(out) }
    }
}

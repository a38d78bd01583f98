//! Waiting for completion events.

use std::sync::Arc;
use std::time::Duration;

use crate::objects::completion_channel::{CompletionChannel, CqEvent};
use crate::objects::completion_queue::CompletionQueue;
use pumice_platform::outside;

use super::Hca;

impl Hca {
    /// Arms a completion queue: one event comes on its channel at the next completion (with `solicited_only`,
    /// at the next solicited or unsuccessful one). Existing completions make no event, with one exception:
    /// see [`CompletionQueue::arm`].
    pub fn req_notify_cq(&self, cq: &CompletionQueue, solicited_only: bool) {
        if self.is_own() {
            // An adapter delivers what has arrived before the queue is armed. Outside of a simulated world
            // another thread does that at times.
            if outside::world::is_in_world() {
                self.drive();
            }
            cq.arm(solicited_only);
            self.core.handover.armed();
        }
    }

    /// Blocks until a completion event comes or the time is up. The calling thread drives the engine while it
    /// waits, so a packet costs one wake-up and not two. In a process that was forked from the one of the
    /// device there is no event to wait for.
    pub fn wait_cq_event(
        &self,
        channel: &Arc<CompletionChannel>,
        timeout: Option<Duration>,
    ) -> Option<CqEvent> {
        self.is_own().then(|| self.core.wait_event(channel, timeout, false))?
    }

    /// Blocks as [`Hca::wait_cq_event`] does, but a signal handler that ran in this thread ends the wait with
    /// `None`, as it ends read(2).
    pub fn wait_cq_event_or_signal(
        &self,
        channel: &Arc<CompletionChannel>,
        timeout: Option<Duration>,
    ) -> Option<CqEvent> {
        self.is_own().then(|| self.core.wait_event(channel, timeout, true))?
    }
}

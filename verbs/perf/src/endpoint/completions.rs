//! Completions of one end, and the counters of its device.

use std::time::{Duration, Instant};

use pumice_verbs::{Counter, Device, WcFlags, WorkCompletion};

use super::buffers::receives_per_queue;
use super::end::Endpoint;
use super::info::PacketCounts;
use crate::error::Result;
use crate::plan::Operation;

/// Time without a message after which no more are expected.
const QUIET_TIME: Duration = Duration::from_millis(5);

/// Methods for completions. Each call fails if a request has failed.
impl Endpoint {
    /// Returns the number in a message's immediate data.
    pub(crate) fn number_of(completion: &WorkCompletion) -> u64 {
        u64::from(u32::from_be_bytes(completion.imm_data))
    }

    /// Reports whether it has one.
    pub(crate) fn has_number(completion: &WorkCompletion) -> bool {
        completion.flags.contains(WcFlags::WITH_IMM)
    }

    /// Takes completions of sends; a poll that finds none drives the device.
    #[inline]
    pub(crate) fn poll_sends(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.sends.poll(out)
    }

    /// Takes completions of receives; a poll that finds none drives the device.
    #[inline]
    pub(crate) fn poll_receives(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.receives.poll(out)
    }

    /// Takes completions as [`poll_sends`](Endpoint::poll_sends) does, sleeping until there are some.
    pub(crate) fn wait_sends(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        self.sends.wait(out, limit)
    }

    /// Takes completions as [`poll_receives`](Endpoint::poll_receives) does, sleeping until there are some.
    pub(crate) fn wait_receives(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        self.receives.wait(out, limit)
    }

    /// Takes completions of sends that no loop waits for.
    pub(crate) fn discard_sends(&mut self) -> Result<()> {
        let mut done = [WorkCompletion::default(); 32];
        while !self.sends.cq.is_empty() && self.sends.poll(&mut done)? > 0 {}
        Ok(())
    }

    /// Takes the completions that an earlier round left.
    pub(crate) fn drain(&mut self) -> Result<()> {
        let mut done = [WorkCompletion::default(); 32];
        while self.sends.poll(&mut done)? > 0 {}
        loop {
            let count = self.receives.poll(&mut done)?;
            if count == 0 {
                return Ok(());
            }
            for completion in done.iter().take(count) {
                self.post_receive_again(completion)?;
            }
        }
    }

    /// Lets the device receive until no more messages arrive; acknowledged messages are here already, so a
    /// reliable service need not wait.
    pub(crate) fn settle(&mut self, reliable: bool) -> Result<()> {
        if reliable {
            return Ok(());
        }
        let received = |device: &Device| device.counters().value(Counter::RxPackets);
        let (mut before, mut since) = (received(&self.device), Instant::now());
        while since.elapsed() < QUIET_TIME {
            self.idle.poll(&mut [WorkCompletion::default()]);
            let now = received(&self.device);
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Reports whether messages arrive with a completion each.
    pub(crate) fn receives_messages(&self) -> bool {
        self.plan.operation == Operation::Send
    }

    /// Returns the number of messages whose contents the destination can hold side by side.
    pub(crate) fn checkable_messages(&self) -> u64 {
        let distinct = if self.plan.operation == Operation::Send && self.plan.qp_count > 1 {
            // Receives of different queue pairs may share memory.
            let receives = receives_per_queue(&self.plan) * self.plan.qp_count;
            if self.plan.shared_receives() || self.buffers.targets.len() < receives {
                1
            } else {
                self.buffers.sources.len()
            }
        } else {
            self.buffers.sources.len().min(self.buffers.targets.len())
        };
        distinct.max(1) as u64
    }

    /// Returns the counters of the device.
    pub(crate) fn traffic(&self) -> PacketCounts {
        let count = |counter| self.device.counters().value(counter);
        PacketCounts {
            sent: count(Counter::TxPackets),
            received: count(Counter::RxPackets),
            retransmitted: count(Counter::RetransmittedPackets),
            timeouts: count(Counter::Timeout),
            receiver_not_ready: count(Counter::RxRnrNak),
        }
    }
}

//! Completions of one end, and what its device counts.

use std::time::{Duration, Instant};

use pumice_verbs::{Counter, Device, WcFlags, WorkCompletion};

use super::buffers::receives_per_queue;
use super::end::Endpoint;
use super::info::Traffic;
use crate::error::Result;
use crate::plan::Operation;

/// Nothing more comes when nothing came for this long.
const SILENCE: Duration = Duration::from_millis(5);

/// Each call fails if a request has failed.
impl Endpoint {
    /// Number in a message's immediate data.
    pub(crate) fn number_of(completion: &WorkCompletion) -> u64 {
        u64::from(u32::from_be_bytes(completion.imm_data))
    }

    /// Whether it has one.
    pub(crate) fn has_number(completion: &WorkCompletion) -> bool {
        completion.flags.contains(WcFlags::WITH_IMM)
    }

    /// Completions of sends; looking at none drives the device.
    #[inline]
    pub(crate) fn poll_sends(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.sends.poll(out)
    }

    /// Completions of receives; looking at none drives the device.
    #[inline]
    pub(crate) fn poll_receives(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.receives.poll(out)
    }

    /// As [`poll_sends`](Endpoint::poll_sends), sleeping until there are some.
    pub(crate) fn wait_sends(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        self.sends.wait(out, limit)
    }

    /// As [`poll_receives`](Endpoint::poll_receives), sleeping until there are some.
    pub(crate) fn wait_receives(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        self.receives.wait(out, limit)
    }

    /// Takes completions of sends that no loop waits for.
    pub(crate) fn discard_sends(&mut self) -> Result<()> {
        let mut done = [WorkCompletion::default(); 32];
        while !self.sends.cq.is_empty() && self.sends.poll(&mut done)? > 0 {}
        Ok(())
    }

    /// Takes what an earlier round left.
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

    /// Lets the device receive until nothing more comes; what is acknowledged is here already, so that a
    /// reliable service need not wait.
    pub(crate) fn settle(&mut self, reliable: bool) -> Result<()> {
        if reliable {
            return Ok(());
        }
        let received = |device: &Device| device.counters().value(Counter::RxPackets);
        let (mut before, mut since) = (received(&self.device), Instant::now());
        while since.elapsed() < SILENCE {
            self.idle.poll(&mut [WorkCompletion::default()]);
            let now = received(&self.device);
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Whether messages arrive with a completion each.
    pub(crate) fn receives_messages(&self) -> bool {
        self.plan.operation == Operation::Send
    }

    /// Messages whose contents the destination can hold side by side.
    pub(crate) fn checkable_messages(&self) -> u64 {
        let distinct = if self.plan.operation == Operation::Send && self.plan.qp_count > 1 {
            // Receives of different queue pairs may share memory.
            let receives = receives_per_queue(&self.plan) * self.plan.qp_count;
            if self.plan.shared_receives() || self.targets.len() < receives { 1 } else { self.sources.len() }
        } else {
            self.sources.len().min(self.targets.len())
        };
        distinct.max(1) as u64
    }

    /// What the device counted.
    pub(crate) fn traffic(&self) -> Traffic {
        let count = |counter| self.device.counters().value(counter);
        Traffic {
            sent: count(Counter::TxPackets),
            received: count(Counter::RxPackets),
            retransmitted: count(Counter::RetransmittedPackets),
            timeouts: count(Counter::Timeout),
            receiver_not_ready: count(Counter::RxRnrNak),
        }
    }
}

//! Contents of one end's memory: filled before messages leave, compared after they arrived.

use std::sync::atomic::Ordering;

use super::buffers::{CACHE_LINE, grh_bytes, source_stride, target_stride};
use super::end::Endpoint;
use crate::error::{PerfError, Result, of_device};
use crate::pattern::{self, Tag};

impl Endpoint {
    /// Fills a message to be sent.
    pub(crate) fn fill_send(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        pattern::fill(&mut self.buffers.scratch, tag);
        let stride = source_stride(&self.plan);
        self.buffers.source.write(buffer * stride, &self.buffers.scratch).map_err(of_device)
    }

    /// Fills all messages with the same contents.
    pub(crate) fn fill_sends(&mut self, tag: Tag) -> Result<()> {
        (0..self.buffers.sources.len()).try_for_each(|buffer| self.fill_send(buffer, tag))
    }

    /// Fills memory that the peer reads.
    pub(crate) fn fill_target(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        pattern::fill(&mut self.buffers.scratch, tag);
        self.buffers
            .target
            .write(buffer * target_stride(&self.plan), &self.buffers.scratch)
            .map_err(of_device)
    }

    /// Compares the data of a READ.
    pub(crate) fn check_send(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        let stride = source_stride(&self.plan);
        self.buffers.source.read(buffer * stride, &mut self.buffers.scratch).map_err(of_device)?;
        self.compare("read", buffer, tag)
    }

    /// Compares data that the peer wrote.
    pub(crate) fn check_target(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        self.buffers
            .target
            .read(buffer * target_stride(&self.plan), &mut self.buffers.scratch)
            .map_err(of_device)?;
        self.compare("written", buffer, tag)
    }

    /// Compares a received message.
    pub(crate) fn check_receive(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        let offset = buffer * target_stride(&self.plan) + grh_bytes(&self.plan);
        self.buffers.target.read(offset, &mut self.buffers.scratch).map_err(of_device)?;
        self.compare("received", buffer, tag)
    }

    fn compare(&self, how: &str, buffer: usize, tag: Tag) -> Result<()> {
        let Some(wrong) = pattern::first_wrong(&self.buffers.scratch, tag) else { return Ok(()) };
        Err(PerfError::Contents(format!(
            "byte {} of a message {how} in buffer {buffer} is {:#04x} instead of {:#04x}: the device does \
             not transport data as it should",
            wrong.offset, wrong.found, wrong.expected
        )))
    }

    /// Compares the results of the oldest `count` fetch-and-adds of a queue pair: each is one more than the
    /// one before.
    pub(crate) fn check_fetched(&mut self, qp: usize, count: u64) -> Result<()> {
        let Some(fetched) = self.fetched.get_mut(qp) else { return Ok(()) };
        for _ in 0..count {
            let expected = *fetched;
            *fetched += 1;
            let buffer = qp * self.plan.depth + (expected % self.plan.depth as u64) as usize;
            let result = self.buffers.source.atomic_u64(buffer * CACHE_LINE).map_err(of_device)?;
            let found = result.load(Ordering::Acquire);
            if found != expected {
                let sentence = format!("a fetch-and-add returned {found} instead of {expected}");
                return Err(PerfError::Contents(sentence));
            }
        }
        Ok(())
    }

    /// Returns the number of fetch-and-add results compared so far.
    pub(crate) fn checked_results(&self) -> u64 {
        self.fetched.iter().sum()
    }

    /// Returns the expected values of the peer's counters, by queue pair.
    pub(crate) fn expected_counters(&self) -> Vec<u64> {
        self.fetched.clone()
    }

    /// Compares the counters that the peer's fetch-and-adds incremented.
    pub(crate) fn check_counters(&mut self, values: &[u64]) -> Result<()> {
        for (buffer, expected) in values.iter().enumerate() {
            let counter =
                self.buffers.target.atomic_u64(buffer * target_stride(&self.plan)).map_err(of_device)?;
            let found = counter.load(Ordering::Acquire);
            if found != *expected {
                let sentence = format!("a counter is at {found} after {expected} fetch-and-adds");
                return Err(PerfError::Contents(sentence));
            }
        }
        Ok(())
    }
}

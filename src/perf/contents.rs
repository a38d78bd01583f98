//! What one end's memory contains: filled before messages leave, compared after they arrived.

use std::sync::atomic::Ordering;

use super::endpoint::{CACHE_LINE, Endpoint, grh_bytes, said, target_stride};
use super::pattern::{self, Tag};

impl Endpoint {
    /// Gives a message its contents.
    pub(crate) fn fill_send(&mut self, slot: usize, tag: Tag) -> Result<(), String> {
        pattern::fill(&mut self.scratch, tag);
        let stride = self.plan.size_bytes.next_multiple_of(CACHE_LINE);
        self.source.write(slot * stride, &self.scratch).map_err(said)
    }

    /// Gives all messages the same contents.
    pub(crate) fn fill_sends(&mut self, tag: Tag) -> Result<(), String> {
        (0..self.sources.len()).try_for_each(|slot| self.fill_send(slot, tag))
    }

    /// Gives memory that the peer reads its contents.
    pub(crate) fn fill_target(&mut self, slot: usize, tag: Tag) -> Result<(), String> {
        pattern::fill(&mut self.scratch, tag);
        self.target.write(slot * target_stride(&self.plan), &self.scratch).map_err(said)
    }

    /// Compares what a READ brought.
    pub(crate) fn check_send(&mut self, slot: usize, tag: Tag) -> Result<(), String> {
        let stride = self.plan.size_bytes.next_multiple_of(CACHE_LINE);
        self.source.read(slot * stride, &mut self.scratch).map_err(said)?;
        self.compare("read", slot, tag)
    }

    /// Compares what the peer wrote.
    pub(crate) fn check_target(&mut self, slot: usize, tag: Tag) -> Result<(), String> {
        self.target.read(slot * target_stride(&self.plan), &mut self.scratch).map_err(said)?;
        self.compare("written", slot, tag)
    }

    /// Compares a received message.
    pub(crate) fn check_receive(&mut self, slot: usize, tag: Tag) -> Result<(), String> {
        let offset = slot * target_stride(&self.plan) + grh_bytes(&self.plan);
        self.target.read(offset, &mut self.scratch).map_err(said)?;
        self.compare("received", slot, tag)
    }

    fn compare(&self, how: &str, slot: usize, tag: Tag) -> Result<(), String> {
        let Some(wrong) = pattern::first_wrong(&self.scratch, tag) else { return Ok(()) };
        Err(format!(
            "byte {} of a message {how} in buffer {slot} is {:#04x} instead of {:#04x}: the device does not \
            transport data as it should",
            wrong.offset, wrong.found, wrong.expected
        ))
    }

    /// Compares the results of the oldest `count` fetch-and-adds of a queue pair: each is one more than the
    /// one before.
    pub(crate) fn check_fetched(&mut self, qp: usize, count: u64) -> Result<(), String> {
        let Some(fetched) = self.fetched.get_mut(qp) else { return Ok(()) };
        for _ in 0..count {
            let expected = *fetched;
            *fetched += 1;
            let slot = qp * self.plan.depth + (expected % self.plan.depth as u64) as usize;
            let place = self.source.atomic_u64(slot * CACHE_LINE).map_err(said)?;
            let found = place.load(Ordering::Acquire);
            if found != expected {
                return Err(format!("a fetch-and-add returned {found} instead of {expected}"));
            }
        }
        Ok(())
    }

    /// Results of fetch-and-adds compared so far.
    pub(crate) fn checked_results(&self) -> u64 {
        self.fetched.iter().sum()
    }

    /// What the peer's counters should be, by queue pair.
    pub(crate) fn expected_counters(&self) -> Vec<u64> {
        self.fetched.clone()
    }

    /// Compares the counters that the peer's fetch-and-adds counted.
    pub(crate) fn check_counters(&mut self, values: &[u64]) -> Result<(), String> {
        for (slot, expected) in values.iter().enumerate() {
            let place = self.target.atomic_u64(slot * target_stride(&self.plan)).map_err(said)?;
            let found = place.load(Ordering::Acquire);
            if found != *expected {
                return Err(format!("a counter is at {found} after {expected} fetch-and-adds"));
            }
        }
        Ok(())
    }
}

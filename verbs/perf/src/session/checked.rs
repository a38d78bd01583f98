//! Contents of messages, and rounds of the yardstick beside those of the device on one host.

use std::time::Duration;

use super::{Session, Yardstick};
use crate::control::{ClientRequest, Contents, Round};
use crate::endpoint::{Medium, receives_per_queue};
use crate::error::Result;
use crate::memory::{ThreadPair, copies};
use crate::pattern::Tag;
use crate::plan::{MeasuredQuantity, Operation};
use crate::report::RoundFigures;
use crate::rounds::{RoundLimit, latency, send};

/// Length of a memory round: memory settles sooner than sockets do.
const MEMORY_ROUND: Duration = Duration::from_millis(100);
/// Largest number of warm-ups in which the two processes may agree on shared memory. On a busy machine a
/// process may have to wait for a processor longer than the other one waits for its answer, which asks again
/// after ten seconds.
const MAX_WARM_UPS: usize = 300;

impl Session {
    /// Exchanges messages until the medium of the measurement carries them.
    pub(super) fn warm_up(&mut self, duration: Duration) -> Result<()> {
        for _ in 0..MAX_WARM_UPS {
            self.ours(duration, self.plan.qp_count)?;
            self.medium = self.end.medium();
            if !self.medium.as_ref().is_some_and(Medium::may_change) {
                break;
            }
        }
        Ok(())
    }

    /// Runs a round of the yardstick, if the plan wants one.
    pub(super) fn raw_round(&mut self, duration: Duration, measured: &mut RoundFigures) -> Result<()> {
        if !self.plan.raw {
            return Ok(());
        }
        match Yardstick::of(&self.plan, self.medium.as_ref()) {
            Yardstick::PlainUdp => self.plain_udp_round(duration, measured),
            of_memory => {
                self.memory_round(of_memory, duration.min(MEMORY_ROUND), measured);
                Ok(())
            }
        }
    }

    /// Runs a round of memory. The other end waits for the next request meanwhile, asleep.
    fn memory_round(&mut self, yardstick: Yardstick, duration: Duration, measured: &mut RoundFigures) {
        let (pair, size_bytes) = (ThreadPair::on(self.second_core), self.plan.size_bytes);
        match yardstick {
            Yardstick::Memcpy => measured.raw = Some(copies(duration) / 1e9),
            _ if size_bytes > self.plan.mtu_bytes => {} // As with plain UDP: a message of several packets.
            Yardstick::Futex => {
                let times = pair.sleep(duration, &mut self.times);
                measured.set_raw_round_trips(&self.plan, times);
            }
            _ if self.plan.quantity == MeasuredQuantity::Rate => {
                measured.raw = Some(pair.stream(size_bytes, duration) / 1e6);
            }
            _ => {
                let times = pair.spin(size_bytes, duration, &mut self.times);
                measured.set_raw_round_trips(&self.plan, times);
            }
        }
    }

    /// Fills the memory before a timed round, with contents that it did not have before.
    pub(super) fn prepare(&mut self) -> Result<Tag> {
        let tag = self.next_tag;
        self.next_tag += self.plan.buffer_count() as u64;
        if !self.plan.verify {
            return Ok(tag);
        }
        match self.plan.operation {
            Operation::Send => self.end.fill_sends(tag)?,
            Operation::Write => {
                for buffer in 0..self.plan.buffer_count() {
                    self.end.fill_send(buffer, tag + buffer as u64)?;
                }
            }
            Operation::Read => self.fill_peer(tag, self.plan.buffer_count() as u64)?,
            Operation::Atomic => {}
        }
        Ok(tag)
    }

    /// Compares the memory that messages went to after a timed round.
    pub(super) fn check_contents(&mut self, tag: Tag, messages: u64, answered: u64) -> Result<()> {
        let buffers = messages.min(self.plan.buffer_count() as u64);
        match self.plan.operation {
            // The receiver compared it when the round ended; answers ended up here, in every buffer once
            // there were as many as buffers. (A lost datagram can end a short round before that.)
            Operation::Send if self.plan.ping_pong() => {
                if answered >= receives_per_queue(&self.plan) as u64 {
                    self.end.check_receive(0, tag)?;
                }
                Ok(())
            }
            Operation::Send => Ok(()),
            Operation::Write => self.check_peer(tag, buffers),
            Operation::Read => {
                (0..buffers).try_for_each(|buffer| self.end.check_send(buffer as usize, tag + buffer))
            }
            Operation::Atomic => {
                let values = self.end.expected_counters();
                self.confirm(&ClientRequest::CheckCounters { values })
            }
        }
    }

    /// Sends messages that are all different, each compared in full where it arrives.
    pub(super) fn checked_phase(&mut self) -> Result<()> {
        if self.plan.operation == Operation::Atomic {
            // Every result of every round is compared anyway.
            let before = self.end.checked_results();
            self.totals.checked_messages = before;
            return Ok(());
        }
        if self.plan.ping_pong() {
            let first = self.tags(CHECKED_ANSWERS);
            self.start(Round::Ours { contents: Contents::Numbered { first } })?;
            latency::check_answers(&mut self.end, &self.plan, first, CHECKED_ANSWERS)?;
            let served = self.stop(CHECKED_ANSWERS)?;
            // Messages and answers both count.
            self.totals.checked_messages += 2 * served.checked;
            return Ok(());
        }
        let batch = self.end.checkable_messages();
        let most = (CHECKED_BYTES / self.plan.size_bytes.max(1) as u64).clamp(1, CHECKED_MESSAGES);
        let mut checked = 0;
        for _ in 0..CHECKED_BATCHES {
            checked += self.checked_batch(batch.min(most))?;
            if checked >= most {
                break;
            }
        }
        self.totals.checked_messages += checked;
        Ok(())
    }

    fn checked_batch(&mut self, count: u64) -> Result<u64> {
        let first = self.tags(count);
        let limit = RoundLimit::Messages(count);
        match self.plan.operation {
            Operation::Read => self.fill_peer(first, count)?,
            _ => (0..count).try_for_each(|buffer| self.end.fill_send(buffer as usize, first + buffer))?,
        }
        let qp_count = self.plan.qp_count;
        if self.plan.operation == Operation::Send {
            self.start(Round::Ours { contents: Contents::Numbered { first } })?;
            send(&mut self.end, &self.plan, qp_count, limit)?;
            let served = self.stop(count)?;
            return Ok(served.checked.max(1));
        }
        self.start(Round::Ours { contents: Contents::Same { tag: first } })?;
        send(&mut self.end, &self.plan, qp_count, limit)?;
        self.stop(count)?;
        if self.plan.operation == Operation::Read {
            (0..count).try_for_each(|buffer| self.end.check_send(buffer as usize, first + buffer))?;
        } else {
            self.check_peer(first, count)?;
        }
        Ok(count)
    }
}

/// Largest numbers of messages and bytes that a checked phase of a round sends.
const CHECKED_MESSAGES: u64 = 4096;
const CHECKED_BYTES: u64 = 16 << 20;
/// Number of times that they are filled anew.
const CHECKED_BATCHES: usize = 32;
/// Number of checked ping-pongs per round.
const CHECKED_ANSWERS: u64 = 64;

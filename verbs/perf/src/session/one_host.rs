//! Rounds of the yardstick beside those of the device: plain UDP, or memory when that carries the packets.

use std::time::Duration;

use super::run::Session;
use super::yardstick::Yardstick;
use crate::endpoint::Medium;
use crate::error::Result;
use crate::memory::{ThreadPair, copies};
use crate::plan::MeasuredQuantity;
use crate::report::RoundFigures;

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
}

//! Timers of a requester: timeouts, probes, and holes that become old enough.

use super::{LossProof, MrcFailure, MrcRequester};
use crate::mrc::constants::PROBE_AFTER_ROUND_TRIPS;
use crate::mrc::settings::MrcSettings;
use crate::mrc::statistics::MrcStatistics;
use crate::types::WcStatus;

impl MrcRequester {
    /// Returns the time at which [`MrcRequester::handle_timeout`] is to be called.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let timeout = self.flight.oldest_ns().map(|sent_ns| sent_ns.saturating_add(self.retry.next_ns()));
        [timeout, self.probe_ns(), self.hole_ns, self.ack_ns(), self.paths.probe_deadline_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the time at which a probe asks for the state of packets that the peer does not report.
    fn probe_ns(&self) -> Option<u64> {
        let wait = self.round_trips(self.probes.unanswered_probes())?;
        let is_due = self.flight.flying() > 0 && !self.probes.is_requested();
        is_due.then(|| self.active_ns.saturating_add(wait))
    }

    /// Returns two round trips in ns, doubled `doublings` times; `None` if the timeout comes first.
    fn round_trips(&self, doublings: u32) -> Option<u64> {
        let wait = self.smooth_rtt_ns.saturating_mul(PROBE_AFTER_ROUND_TRIPS);
        let wait = wait.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
        (wait < self.retry.first_ns()).then_some(wait)
    }

    /// Returns the time at which the peer is asked for a transport ACK that seems to be lost.
    fn ack_ns(&self) -> Option<u64> {
        let is_missing =
            self.flight.is_empty() && self.queue.last_of_oldest().is_some() && !self.asks_for_ack;
        let wait = self.round_trips(self.ack_rounds).unwrap_or(self.retry.next_ns());
        is_missing.then(|| self.unacknowledged_ns.saturating_add(wait))
    }

    /// Handles the timers that are due.
    ///
    /// # Errors
    /// The peer has not answered for too long.
    pub(crate) fn handle_timeout(
        &mut self,
        settings: &MrcSettings,
        now_ns: u64,
        statistics: &mut MrcStatistics,
    ) -> Result<(), MrcFailure> {
        while let Some(path) = self.paths.due_probe(now_ns) {
            self.probes.test(path);
        }
        if self.probe_ns().is_some_and(|due| due <= now_ns) {
            self.probes.ask();
        }
        if self.hole_ns.is_some_and(|due| due <= now_ns) {
            self.find_holes(now_ns, settings.mtu_bytes(), statistics);
        }
        if self.ack_ns().is_some_and(|due| due <= now_ns) {
            let is_retry = self.round_trips(self.ack_rounds).is_none();
            (self.asks_for_ack, self.ack_rounds) = (true, self.ack_rounds.saturating_add(1));
            self.unacknowledged_ns = now_ns;
            if is_retry {
                self.count_retry(self.queue.last_of_oldest().unwrap_or(0))?;
            }
        }
        self.expire(now_ns, statistics)
    }

    fn count_retry(&mut self, number: u64) -> Result<(), MrcFailure> {
        self.retry.retry().map_err(|_| MrcFailure { number, status: WcStatus::RetryExcErr })
    }

    /// Marks packets as lost that have been in flight for longer than the timeout.
    fn expire(&mut self, now_ns: u64, statistics: &mut MrcStatistics) -> Result<(), MrcFailure> {
        let timeout_ns = self.retry.next_ns();
        let is_due = |sent_ns: u64| sent_ns.saturating_add(timeout_ns) <= now_ns;
        let mut has_expired = false;
        while let Some((number, sent)) = self.flight.oldest()
            && is_due(sent.sent_ns)
        {
            if !core::mem::replace(&mut has_expired, true) {
                statistics.timeouts += 1;
                self.count_retry(self.flight.base())?;
            }
            self.lose(now_ns, number, LossProof::Timer, statistics);
        }
        Ok(())
    }
}

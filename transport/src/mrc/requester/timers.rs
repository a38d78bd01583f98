//! Timers of a requester: timeouts, probes, and holes that become old enough.

use super::{MrcFailure, MrcRequester};
use crate::event::QpEvent;
use crate::host::{Host, PeerProgress};
use crate::mrc::MrcCallContext;
use crate::mrc::constants::{PROBE_AFTER_ROUND_TRIPS, TIMEOUT_ROUND_TRIPS};
use crate::types::{MrcLossProof, WcStatus};

/// The timeout of verbs has a unit that is 2^2 times as long as MRC's.
const TIMEOUT_OF_VERBS: u8 = 2;
/// Longest wait for a peer without a processor, in nanoseconds: the claim that it has none may be wrong.
const STARVED_PATIENCE_NS: u64 = 20_000_000_000;
/// Shortest time between two checks of such a peer, in nanoseconds.
const STARVED_CHECK_INTERVAL_NS: u64 = 10_000_000;
/// Number of remaining retries at which the peer's process is checked.
const LAST_RETRIES: u8 = 1;

impl MrcRequester {
    /// Returns the time at which [`MrcRequester::handle_timeout`] is to be called.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        [
            self.timer_ns(),
            self.probe_ns(),
            self.silence.hole_ns,
            self.ack_ns(),
            self.paths.probe_deadline_ns(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the time at which the acknowledgement timer expires. It runs from the oldest transmission, and
    /// begins again when the peer tells of packets that have arrived: a round trip through the queues of a
    /// busy host may be longer than the timer, and what is lost while others arrive is found by holes.
    pub(crate) fn timer_ns(&self) -> Option<u64> {
        Some(self.silent_since_ns()?.saturating_add(self.timeout_ns()))
    }

    /// Returns the time until the next retry in ns, which is never shorter than some round trips.
    fn timeout_ns(&self) -> u64 {
        self.retries.retry.next_ns().max(self.rtt.smooth_ns.saturating_mul(TIMEOUT_ROUND_TRIPS))
    }

    /// Returns the time since which the peer has told of no arrival, while packets are in flight.
    fn silent_since_ns(&self) -> Option<u64> {
        Some(self.flight.oldest_ns()?.max(self.silence.heard_ns))
    }

    /// Returns the time since which the peer has been silent, if the timer has expired and its last retry, or
    /// the request itself, is about to be spent on it.
    pub(crate) fn peer_silent_since_ns(&self, now_ns: u64) -> Option<u64> {
        let is_due = self.timer_ns().is_some_and(|due| due <= now_ns);
        let waited_ns = self.silence.starved_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        let is_last = self.retries.retry.retries_left() <= LAST_RETRIES;
        self.silent_since_ns().filter(|_| is_due && is_last && waited_ns < STARVED_PATIENCE_NS)
    }

    /// Returns the time at which a probe asks for the state of packets that the peer does not report.
    fn probe_ns(&self) -> Option<u64> {
        let wait = self.round_trips(self.probes.unanswered_probes())?;
        let is_due = self.flight.flying() > 0 && !self.probes.is_requested();
        is_due.then(|| self.silence.active_ns.saturating_add(wait))
    }

    /// Returns two round trips in ns, doubled `doublings` times; `None` if the timeout comes first.
    fn round_trips(&self, doublings: u32) -> Option<u64> {
        let wait = self.rtt.smooth_ns.saturating_mul(PROBE_AFTER_ROUND_TRIPS);
        let wait = wait.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
        let first_ns =
            self.rtt.smooth_ns.saturating_mul(TIMEOUT_ROUND_TRIPS).max(self.retries.retry.first_ns());
        (wait < first_ns).then_some(wait)
    }

    /// Returns the time at which the peer is asked for a transport ACK that seems to be lost.
    fn ack_ns(&self) -> Option<u64> {
        let is_missing =
            self.flight.is_empty() && self.queue.last_of_oldest().is_some() && !self.missing_ack.asks_for_ack;
        let wait = self.round_trips(self.missing_ack.ack_rounds).unwrap_or(self.timeout_ns());
        is_missing.then(|| self.missing_ack.unacknowledged_ns.saturating_add(wait))
    }

    /// Handles the timers that are due.
    ///
    /// # Errors
    /// The peer has not answered for too long.
    pub(crate) fn handle_timeout<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        peer: PeerProgress,
    ) -> Result<(), MrcFailure> {
        let now_ns = turn.now_ns;
        while let Some(path) = self.paths.due_probe(now_ns, self.rtt.smooth_ns) {
            self.probes.test(path);
        }
        if self.probe_ns().is_some_and(|due| due <= now_ns) {
            self.probes.ask();
        }
        if self.silence.hole_ns.is_some_and(|due| due <= now_ns) {
            self.find_holes(turn);
        }
        if self.ack_ns().is_some_and(|due| due <= now_ns) {
            let is_retry = self.round_trips(self.missing_ack.ack_rounds).is_none();
            (self.missing_ack.asks_for_ack, self.missing_ack.ack_rounds) =
                (true, self.missing_ack.ack_rounds.saturating_add(1));
            self.missing_ack.unacknowledged_ns = now_ns;
            if is_retry {
                let number = self.queue.last_of_oldest().unwrap_or(0);
                self.report_timeout(turn, number);
                self.count_retry(number)?;
            }
        }
        if matches!(peer, PeerProgress::Starved | PeerProgress::Unread)
            && self.peer_silent_since_ns(now_ns).is_some()
        {
            self.wait_for_starved_peer(turn, peer);
            return Ok(());
        }
        self.expire(turn)
    }

    /// Extends the wait for a peer that has no processor, or whose answer this process has not read yet: its
    /// silence costs no retry.
    fn wait_for_starved_peer<H: Host>(&mut self, turn: &mut MrcCallContext<'_, H>, peer: PeerProgress) {
        if peer == PeerProgress::Starved {
            let psn = self.psn_of(self.flight.base());
            turn.host.emit(&turn.settings.context, QpEvent::PeerStarved { psn });
        }
        self.silence.starved_since_ns.get_or_insert(turn.now_ns);
        let longer_ns = STARVED_CHECK_INTERVAL_NS.saturating_sub(self.timeout_ns());
        self.silence.heard_ns = turn.now_ns.saturating_add(longer_ns);
    }

    fn count_retry(&mut self, number: u64) -> Result<(), MrcFailure> {
        self.retries.retry.retry().map_err(|_| MrcFailure { number, status: WcStatus::RetryExcErr })
    }

    /// Reports that the timer of a packet has expired.
    fn report_timeout<H: Host>(&self, turn: &mut MrcCallContext<'_, H>, number: u64) {
        let (.., timeout) = self.retries.retry_attributes;
        let event = QpEvent::TimedOut {
            psn: self.psn_of(number),
            retries_left: self.retries.retry.retries_left(),
            timeout: timeout.saturating_sub(TIMEOUT_OF_VERBS),
        };
        turn.host.emit(&turn.settings.context, event);
    }

    /// Marks the oldest packet in flight as lost if the timer has expired. The answer to its retransmission
    /// tells which of the others are lost. If all of them left again while they wait in the queues of a busy
    /// peer, their answers, which tell nothing new, would let the timer expire once more, and so on for ever.
    fn expire<H: Host>(&mut self, turn: &mut MrcCallContext<'_, H>) -> Result<(), MrcFailure> {
        if self.timer_ns().is_none_or(|due_ns| turn.now_ns < due_ns) {
            return Ok(());
        }
        let Some((number, _)) = self.flight.oldest() else { return Ok(()) };
        turn.statistics.timeouts += 1;
        self.report_timeout(turn, number);
        self.count_retry(self.flight.base())?;
        self.lose(turn, number, MrcLossProof::Timeout);
        (self.silence.heard_ns, self.silence.is_overdue) = (turn.now_ns, true);
        Ok(())
    }
}

//! Deadlines of the requester: the transport timer, early retransmission, and the wait for a peer without a
//! processor.

use super::{Requester, SendFailure};
use crate::event::{QpEvent, RetransmitReason};
use crate::host::{Host, PeerProgress};
use crate::qp::adaptive_timeout::wait_ns;
use crate::qp::settings::QpSettings;
use crate::types::WcStatus;

/// Time for which evidence of loss enables early retransmission, in nanoseconds.
const LOSSY_NS: u64 = 1_000_000_000;
/// Longest wait for a peer without a processor, in nanoseconds: the claim that it has none may be wrong.
const STARVED_PATIENCE_NS: u64 = 20_000_000_000;
/// Shortest time between two checks of such a peer, in nanoseconds.
const STARVED_CHECK_INTERVAL_NS: u64 = 10_000_000;
/// Number of remaining retries at which the peer's process is checked: from here on a timeout is spent on the
/// last transmission, or ends the request.
const LAST_RETRIES: u8 = 1;

impl Requester {
    #[inline]
    pub(crate) fn reload_retries(&mut self, settings: &QpSettings) {
        //= linux:rxe_comp.c#reset_retry_counters
        //| Progress sets both retry counters to their configured values.
        self.retries.left = settings.retry_count;
        self.retries.rnr_left = settings.rnr_retry;
        self.retries.starved_since_ns = None;
        self.retries.silences = 0;
    }

    /// Records that loss was seen (a sequence NAK, a gap in READ responses, silence).
    pub(crate) fn note_loss(&mut self, now_ns: u64) {
        self.early.lossy_until_ns = now_ns.saturating_add(LOSSY_NS);
    }

    /// Starts the timers if a packet that needs an answer is in flight and no timer runs.
    pub(super) fn start_timers(&mut self, settings: &QpSettings, now_ns: u64) {
        if self.retries.timer_ns.is_none() {
            self.retries.timer_began_ns = now_ns;
            //= statement:24
            //| The timeout 0 means that the requester waits for ever.
            let wait_ns = wait_ns(settings.timeout, settings.adaptive_timeout, self.retries.silences);
            self.retries.timer_ns = wait_ns.map(|ns| now_ns.saturating_add(ns));
        }
        if self.early.timer_ns.is_none() {
            self.arm_early_timer(now_ns);
        }
    }

    fn arm_early_timer(&mut self, now_ns: u64) {
        self.early.timer_ns = (now_ns < self.early.lossy_until_ns)
            .then(|| self.window.early_retransmit_ns())
            .flatten()
            .map(|ns| now_ns.saturating_add(ns << self.early.backoff.min(8)));
    }

    /// Restarts the timers after an acknowledgement, or stops them if no packet is in flight.
    pub(crate) fn restart_timers(&mut self, settings: &QpSettings, now_ns: u64) {
        self.retries.timer_ns = None;
        self.early.timer_ns = None;
        self.early.backoff = 0;
        //= linux:rxe_comp.c#reset_retry_timer
        //| The timer runs only while packets wait for an answer.
        if self.in_flight() > 0 {
            self.start_timers(settings, now_ns);
        }
    }

    /// Returns the time since when the peer has been silent, if the transport timer has expired and its last
    /// retry, or the request itself, is about to be spent on it.
    pub(crate) fn peer_silent_since_ns(&self, now_ns: u64) -> Option<u64> {
        let due = self.retries.timer_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let patient = self
            .retries
            .starved_since_ns
            .is_none_or(|since_ns| now_ns.saturating_sub(since_ns) < STARVED_PATIENCE_NS);
        (due && patient && self.retries.left <= LAST_RETRIES).then_some(self.retries.timer_began_ns)
    }

    /// Extends the wait for a peer that has no processor, or whose answer this process has not read yet: its
    /// silence costs no retry, and is checked again later.
    pub(crate) fn wait_for_starved_peer(&mut self, settings: &QpSettings, now_ns: u64) {
        self.retries.starved_since_ns.get_or_insert(now_ns);
        let wait_ns = wait_ns(settings.timeout, settings.adaptive_timeout, self.retries.silences)
            .map(|ns| ns.max(STARVED_CHECK_INTERVAL_NS));
        self.retries.timer_ns = wait_ns.map(|ns| now_ns.saturating_add(ns));
    }

    /// Returns the next deadline in ns.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        // A number stands for "never", because this is evaluated for every packet.
        let at = |at_ns: Option<u64>| at_ns.unwrap_or(u64::MAX);
        let first_ns =
            at(self.retries.timer_ns).min(at(self.retries.rnr_until_ns)).min(at(self.early.timer_ns));
        let first_ns = first_ns.min(at(self.held_until_ns()));
        (first_ns != u64::MAX).then_some(first_ns)
    }

    /// Returns the time at which the transport timer expires, if it runs.
    pub(crate) const fn timer_due_ns(&self) -> Option<u64> {
        self.retries.timer_ns
    }

    /// Handles a deadline that has passed. For a limited time it waits for a peer that has had no processor,
    /// without spending the last retry and without sending: the packets sent before are in the peer's socket.
    /// It does the same if the peer's answer may be in this process's socket.
    ///
    /// # Errors
    /// Fails if all retries are used up.
    pub(crate) fn handle_timeout<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        peer: PeerProgress,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        //= linux:rxe_req.c#rnr_nak_timer
        //| The requester goes on when the RNR timer has expired.
        if self.retries.rnr_until_ns.is_some_and(|at| at <= now_ns) {
            self.retries.rnr_until_ns = None;
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.handle_timeout(now_ns);
        }
        if self.retries.timer_ns.is_some_and(|at| at <= now_ns) {
            if matches!(peer, PeerProgress::Starved | PeerProgress::Unread)
                && self.peer_silent_since_ns(now_ns).is_some()
            {
                if peer == PeerProgress::Starved {
                    host.emit(&settings.context, QpEvent::PeerStarved { psn: self.psns.acked });
                }
                self.wait_for_starved_peer(settings, now_ns);
                return Ok(());
            }
            self.retries.timer_ns = None;
            let (psn, retries_left, timeout) = (self.psns.acked, self.retries.left, settings.timeout);
            host.emit(&settings.context, QpEvent::TimedOut { psn, retries_left, timeout });
            //= linux:rxe_comp.c#rxe_completer
            //| A request whose retries are used up ends with RETRY_EXC_ERR.
            if self.retries.left == 0 {
                self.retries.peer_is_absent = peer == PeerProgress::Absent;
                return Err(SendFailure { status: WcStatus::RetryExcErr, local: false });
            }
            self.retries.left -= 1;
            self.retries.silences = self.retries.silences.saturating_add(1);
            self.early.timer_ns = None;
            self.fruitless.implied_nak_seen = false;
            self.window.on_timeout(self.psns.sent_end);
            self.rewind(settings, RetransmitReason::Timeout, host);
            return Ok(());
        }
        if self.early.timer_ns.is_some_and(|at| at <= now_ns) {
            // The path is known to lose packets and the peer answered lately: do not wait for the transport
            // timer. This costs no retry, and the transport timer continues to run.
            self.early.timer_ns = None;
            self.early.backoff += 1;
            self.fruitless.implied_nak_seen = false;
            host.emit(&settings.context, QpEvent::FellSilent { psn: self.psns.acked });
            self.window.on_loss(self.psns.sent_end);
            self.rewind(settings, RetransmitReason::Silence, host);
        }
        Ok(())
    }
}

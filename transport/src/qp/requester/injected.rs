//! Answers that a fault plan injects in the peer's name: a NAK, an RNR NAK, a congestion notification.
//!
//! A peer that refuses a packet has accepted everything before it. So the packet is not sent, nor any packet
//! after it, and the NAK takes effect when the peer has acknowledged all that came before.

use super::state::{InjectedAnswer, InjectedEffect};
use super::{Requester, SendFailure};
use crate::event::{QpEvent, RetransmitReason};
use crate::host::Host;
use crate::qp::settings::QpSettings;
use crate::types::{Fate, IgnoredAnswer};
use crate::wire::{NakCode, Psn, Syndrome};

impl Requester {
    /// Reports whether an injected answer waits.
    #[inline]
    pub(crate) fn has_injected_answer(&self) -> bool {
        self.failures.injected.is_some()
    }

    /// Reports whether the next packet lies beyond one whose answer is injected.
    #[inline]
    pub(super) fn waits_for_injected_answer(&self) -> bool {
        self.failures.injected.is_some_and(|injected| !self.cursor_psn().is_before(injected.psn))
    }

    /// Reports whether this packet is the last one that the peer has to acknowledge before the injected
    /// answer.
    #[inline]
    pub(super) fn is_last_before_injected_answer(&self, psn: Psn) -> bool {
        self.failures.injected.is_some_and(|injected| injected.psn == psn.next())
    }

    /// Injects an answer to the packet that was just sent. `before` has entry and number of the packet before
    /// it, if that one did not ask for an acknowledgement; it is sent again and asks for one.
    #[cold]
    pub(super) fn inject_answer<H: Host>(
        &mut self,
        settings: &QpSettings,
        fate: &Fate,
        psn: Psn,
        before: Option<(u64, u32)>,
        now_ns: u64,
        host: &mut H,
    ) {
        if !settings.qp_type.is_reliable() {
            return;
        }
        if fate.notified {
            self.handle_cnp(settings, now_ns, host);
        }
        let answer = match fate.refused {
            _ if fate.halted => InjectedEffect::Halt,
            Some(syndrome) => InjectedEffect::Refusal(syndrome),
            None => return,
        };
        self.failures.injected = Some(InjectedAnswer { psn, answer });
        if let Some((entry, packet)) = before.filter(|_| self.psns.acked != psn) {
            (self.position.cursor, self.position.cursor_packet) = (entry, packet);
        }
    }

    /// Continues after a halt, because the host allows it.
    #[cold]
    pub(crate) fn go_on(&mut self) {
        let Some(InjectedAnswer { psn, answer: InjectedEffect::Halted }) = self.failures.injected else {
            return;
        };
        self.failures.injected = None;
        if self.psns.acked == psn {
            self.reset_cursor();
            self.outstanding.clear();
            // No packet is in flight.
            (self.retries.timer_ns, self.early.timer_ns) = (None, None);
        }
    }

    /// Applies the injected answer, if everything before its packet is acknowledged.
    ///
    /// # Errors
    /// Fails if the request at the head of the queue failed.
    #[cold]
    pub(crate) fn apply_injected_answer<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        let Some(InjectedAnswer { psn, answer }) = self.failures.injected else { return Ok(()) };
        if self.psns.acked.is_before(psn) {
            return Ok(());
        }
        let syndrome = match answer {
            InjectedEffect::Refusal(syndrome) => syndrome,
            InjectedEffect::Halt => {
                self.failures.injected = Some(InjectedAnswer { psn, answer: InjectedEffect::Halted });
                host.halted(&settings.context);
                return Ok(());
            }
            InjectedEffect::Halted => return Ok(()),
        };
        self.failures.injected = None;
        if self.psns.acked != psn {
            return Ok(());
        }
        host.emit(&settings.context, QpEvent::NakReceived { syndrome, psn });
        match syndrome {
            Syndrome::RnrNak { timer_code } => self.wait_for_receiver(settings, timer_code, now_ns, host),
            Syndrome::Nak(NakCode::Sequence) => {
                self.fruitless.ignored_answers.note(IgnoredAnswer::Repeat(psn));
                self.retry(settings, RetransmitReason::SequenceNak, now_ns, host)
            }
            Syndrome::Nak(code) => Err(SendFailure::refused(code)),
            Syndrome::Ack { .. } | Syndrome::Reserved(_) => Ok(()),
        }
    }
}

//! Answers that a fault plan gives in the peer's name: a NAK, an RNR NAK, a congestion notification.
//!
//! A peer that refuses a packet has accepted everything before it. So the packet does not leave, nothing is
//! sent beyond it, and the NAK counts when the peer has acknowledged all that came before.

use super::{Forged, Forgery, Requester, SendFailure};
use crate::event::{QpEvent, Repetition};
use crate::host::Host;
use crate::qp::settings::Settings;
use crate::types::{Answer, Fate};
use crate::wire::{NakCode, Psn, Syndrome};

impl Requester {
    /// Whether an answer in the peer's name waits.
    #[inline]
    pub(crate) fn has_forged(&self) -> bool {
        self.forged.is_some()
    }

    /// Whether the next packet lies beyond one that is answered in the peer's name.
    #[inline]
    pub(super) fn waits_for_forged(&self) -> bool {
        self.forged.is_some_and(|forged| !self.cursor_psn().is_before(forged.psn))
    }

    /// Whether this packet is the last one that the peer has to acknowledge before it.
    #[inline]
    pub(super) fn is_last_before_forged(&self, psn: Psn) -> bool {
        self.forged.is_some_and(|forged| forged.psn == psn.next())
    }

    /// The packet that was just sent is answered in the peer's name. `before`: entry and number of the packet
    /// before it, if that one did not ask for an acknowledgement; it is sent again, and does.
    #[cold]
    pub(super) fn forge<H: Host>(
        &mut self,
        settings: &Settings,
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
            _ if fate.halted => Forgery::Halt,
            Some(syndrome) => Forgery::Refusal(syndrome),
            None => return,
        };
        self.forged = Some(Forged { psn, answer });
        if let Some((entry, packet)) = before.filter(|_| self.acked != psn) {
            (self.cursor, self.cursor_packet) = (entry, packet);
        }
    }

    /// The host lets it go on where it was halted.
    #[cold]
    pub(crate) fn go_on(&mut self) {
        let Some(Forged { psn, answer: Forgery::Halted }) = self.forged else { return };
        self.forged = None;
        if self.acked == psn {
            self.stand_at_oldest();
            self.outstanding.clear();
            // Nothing is in flight.
            (self.timer_ns, self.early_timer_ns) = (None, None);
        }
    }

    /// The answer counts now, if everything before its packet is acknowledged.
    ///
    /// # Errors
    /// The request at the head of the queue failed.
    #[cold]
    pub(crate) fn answer_if_due<H: Host>(
        &mut self,
        settings: &Settings,
        now_ns: u64,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        let Some(Forged { psn, answer }) = self.forged else { return Ok(()) };
        if self.acked.is_before(psn) {
            return Ok(());
        }
        let syndrome = match answer {
            Forgery::Refusal(syndrome) => syndrome,
            Forgery::Halt => {
                self.forged = Some(Forged { psn, answer: Forgery::Halted });
                host.halted(&settings.context);
                return Ok(());
            }
            Forgery::Halted => return Ok(()),
        };
        self.forged = None;
        if self.acked != psn {
            return Ok(());
        }
        host.emit(&settings.context, QpEvent::NakReceived { syndrome, psn });
        match syndrome {
            Syndrome::RnrNak { timer_code } => self.wait_for_receiver(settings, timer_code, now_ns, host),
            Syndrome::Nak(NakCode::Sequence) => {
                self.heard.note(Answer::Repeat(psn));
                self.retry(settings, Repetition::SequenceNak, now_ns, host)
            }
            Syndrome::Nak(code) => Err(SendFailure::refused(code)),
            Syndrome::Ack { .. } | Syndrome::Reserved(_) => Ok(()),
        }
    }
}

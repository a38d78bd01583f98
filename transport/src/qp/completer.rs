//! The completer: the effect of responses on the requester.

use super::peer_port::Fit;
use super::requester::{Outstanding, Requester, SendFailure};
use super::settings::QpSettings;
use crate::event::{QpEvent, RetransmitReason, Topic};
use crate::host::{Counter, Host, fault_of};
use crate::types::{IgnoredAnswer, IgnoredAnswers, WcStatus, WrClass};
use crate::wire::{NakCode, OperationClass, Packet, Position, Psn, Syndrome, rnr_timer_ns};

/// RNR retry count that means "for ever".
//= statement:23
//| The RNR retry count 7 means that the requester tries for ever.
const RNR_RETRY_INFINITE: u8 = 7;

impl Requester {
    /// Handles a response packet of this queue pair's peer.
    ///
    /// # Errors
    /// Fails if the request at the head of the send queue failed.
    pub(crate) fn handle_response<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        let psn = packet.bth().psn;
        //= statement:21
        //| An ACK of a PSN that was never sent changes nothing.
        if !psn.is_before(self.psns.sent_end) {
            self.fruitless.ignored_answers.note(IgnoredAnswer::NeverSent(psn));
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxUnexpectedResponse));
            return Ok(());
        }
        match packet.info().class {
            OperationClass::Acknowledge => self.handle_acknowledge(settings, now_ns, packet, host),
            OperationClass::AtomicAnswer => self.handle_atomic_ack(settings, now_ns, packet, host),
            _ => self.handle_read_response(settings, now_ns, packet, host),
        }?;
        if self.has_injected_answer() {
            self.apply_injected_answer(settings, now_ns, host)?;
        }
        self.fail_if_due(settings)
    }

    /// Rates how well a response from a new port of the peer's fits. Until the peer's port is known, every
    /// answer to an outstanding request fits. Afterwards an answer must say that all that was sent has
    /// arrived, or that the oldest request has not: fatal NAKs are accepted only from the known port.
    pub(crate) fn fit(&self, packet: &Packet<'_>, port_is_known: bool) -> Fit {
        let psn = packet.bth().psn;
        let asked = !psn.is_before(self.psns.acked) && psn.is_before(self.psns.sent_end);
        if !port_is_known {
            // Others change nothing. They may be late answers to the queue pair's connection before a reset.
            return if asked { Fit::Answer } else { Fit::Behind };
        }
        if !asked {
            return if Fit::of_request(psn, self.psns.acked) == Fit::Behind { Fit::Near } else { Fit::Far };
        }
        let exact = match packet.aeth().map(|aeth| Syndrome::from_byte(aeth.syndrome)) {
            Some(Syndrome::Ack { .. }) if packet.info().class == OperationClass::Acknowledge => {
                psn.next() == self.psns.sent_end
            }
            Some(Syndrome::Nak(NakCode::Sequence) | Syndrome::RnrNak { .. } | Syndrome::Ack { .. })
            | None => psn == self.psns.acked,
            Some(_) => false,
        };
        if exact { Fit::Exact } else { Fit::Near }
    }

    fn handle_acknowledge<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        let psn = packet.bth().psn;
        let Some(aeth) = packet.aeth() else { return Ok(()) };
        //= linux:rxe_comp.c#check_psn
        //| An ACK that is older than the oldest open request is dropped.
        if psn.is_before(self.psns.acked) {
            self.note_old(psn);
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxStaleResponse));
            return Ok(());
        }
        let syndrome = Syndrome::from_byte(aeth.syndrome);
        if matches!(syndrome, Syndrome::RnrNak { .. } | Syndrome::Nak(_)) {
            host.emit(&settings.context, QpEvent::NakReceived { syndrome, psn });
        }
        match syndrome {
            //= linux:rxe_comp.c#check_ack
            //| The syndrome of the AETH says whether the packet is an ACK, an RNR NAK or a NAK.
            Syndrome::Ack { .. } => self.handle_ack(settings, now_ns, packet, host),
            Syndrome::RnrNak { timer_code } => {
                if !self.acknowledge_before(settings, psn, now_ns, host) {
                    return self.implied_nak(settings, now_ns, host);
                }
                self.wait_for_receiver(settings, timer_code, now_ns, host)
            }
            Syndrome::Nak(NakCode::Sequence) => self.handle_sequence_nak(settings, now_ns, psn, host),
            Syndrome::Nak(code) => {
                if !self.acknowledge_before(settings, psn, now_ns, host) {
                    return self.implied_nak(settings, now_ns, host);
                }
                //= statement:30
                //| A fatal NAK acknowledges everything before its PSN and fails the request that it names.
                Err(SendFailure::refused(code))
            }
            Syndrome::Reserved(_) => {
                host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxReservedSyndrome));
                Ok(())
            }
        }
    }

    fn handle_ack<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        let psn = packet.bth().psn;
        if self.acknowledge_before(settings, psn.next(), now_ns, host) {
            return Ok(());
        }
        // While a responder is still answering a READ, its newest PSN lies inside the READ.
        let head = self.queue.entry(self.queue.head());
        if head.is_some_and(|wqe| psn.is_before(wqe.end_psn())) {
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxStaleResponse));
            return Ok(());
        }
        //= statement:19
        //| An ACK behind a READ does not complete the READ, whose response was lost.
        self.implied_nak(settings, now_ns, host)
    }

    fn handle_sequence_nak<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        psn: Psn,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        if !self.acknowledge_before(settings, psn, now_ns, host) {
            self.fruitless.ignored_answers.note(IgnoredAnswer::Later(psn));
            return self.implied_nak(settings, now_ns, host);
        }
        self.fruitless.ignored_answers.note(IgnoredAnswer::Repeat(psn));
        // rdma_rxe sends one for the packets behind the refused one too. After a short wait it arrives when
        // all have been sent again, and would cost a retry for each RNR NAK.
        let says_nothing_new = core::mem::take(&mut self.fruitless.refused_for_now);
        if says_nothing_new || self.retries.rnr_until_ns.is_some() || !psn.is_before(self.cursor_psn()) {
            return Ok(());
        }
        self.retry(settings, RetransmitReason::SequenceNak, now_ns, host)
    }

    /// Acknowledges all requests before `end` that need no response of their own. Returns false at a request
    /// that needs one: its response was lost.
    #[inline]
    pub(crate) fn acknowledge_before<H: Host>(
        &mut self,
        settings: &QpSettings,
        end: Psn,
        now_ns: u64,
        host: &mut H,
    ) -> bool {
        //= statement:20
        //| One ACK acknowledges all SENDs and WRITEs up to its PSN.
        let mut reached = self.psns.acked;
        let mut clear = true;
        let mut number = self.queue.head();
        while reached.is_before(end) {
            let Some(wqe) = self.queue.entry(number) else { break };
            number += 1;
            if wqe.is_local() {
                continue;
            }
            //= statement:20
            //| No ACK completes a READ or an atomic operation.
            if wqe.needs_response() {
                clear = false;
                break;
            }
            let wqe_end = wqe.end_psn();
            reached = if wqe_end.is_before(end) { wqe_end } else { end };
        }
        self.advance_to(settings, reached, now_ns, host);
        clear
    }

    /// Moves `acked` forward to `reached`, with completions, window and timers.
    pub(super) fn advance_to<H: Host>(
        &mut self,
        settings: &QpSettings,
        reached: Psn,
        now_ns: u64,
        host: &mut H,
    ) {
        let count = reached.since(self.psns.acked);
        if count <= 0 {
            return;
        }
        let behind = self.cursor_psn().is_before(reached);
        if host.listens(Topic::Packets) {
            self.report_progress(settings, (reached, count as u32), now_ns, host);
        } else {
            self.window.on_acked(reached, count as u32, now_ns);
        }
        self.psns.acked = reached;
        self.fruitless.ignored_answers = IgnoredAnswers::default();
        //= statement:24
        //| Progress gives the request all its retries again.
        self.reload_retries(settings);
        self.fruitless.implied_nak_seen = false;
        self.fruitless.refused_for_now = false;
        self.retries.rnr_until_ns = None;
        self.complete_ready(settings, host);
        if behind {
            // This is a late answer to packets that were about to be sent again.
            self.position.cursor = self.queue.head();
            self.position.cursor_packet = match self.queue.entry(self.position.cursor) {
                Some(wqe) if !wqe.is_local() => reached.since(wqe.span.first_psn).max(0) as u32,
                _ => 0,
            };
        }
        self.restart_timers(settings, now_ns);
    }

    /// Reports the acknowledgement of `count` PSNs before `reached`, and what the window has measured by it.
    #[cold]
    fn report_progress<H: Host>(
        &mut self,
        settings: &QpSettings,
        (reached, count): (Psn, u32),
        now_ns: u64,
        host: &mut H,
    ) {
        let in_flight_packets = self.in_flight();
        self.window.on_acked(reached, count, now_ns);
        host.emit_uncounted(&settings.context, &QpEvent::Acknowledged { before: reached });
        if self.window.is_report_due(now_ns) {
            let (rtt_ns, window_packets) = (self.window.rtt_ns(), self.window.packets());
            let measured = QpEvent::Measured { rtt_ns, window_packets, in_flight_packets };
            host.emit(&settings.context, measured);
        }
    }

    /// Handles a response beyond a pending READ or atomic, whose own response was lost.
    fn implied_nak<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        //= linux:rxe_comp.c#rxe_completer
        //| A lost response costs one retry, however many later responses tell of it.
        if self.fruitless.implied_nak_seen || self.in_flight() == 0 {
            return Ok(());
        }
        host.emit(&settings.context, QpEvent::ImpliedNak { psn: self.psns.acked });
        self.retry(settings, RetransmitReason::MissingAnswer, now_ns, host)?;
        self.fruitless.implied_nak_seen = true;
        Ok(())
    }

    /// Sends all unacknowledged packets again, at the cost of one retry.
    pub(crate) fn retry<H: Host>(
        &mut self,
        settings: &QpSettings,
        why: RetransmitReason,
        now_ns: u64,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        //= statement:24
        //| A retry count of n gives one transmission and n repetitions.
        if self.retries.left == 0 {
            return Err(SendFailure { status: WcStatus::RetryExcErr, local: false });
        }
        self.retries.left -= 1;
        self.note_loss(now_ns);
        self.window.on_loss(self.psns.sent_end);
        self.rewind(settings, why, host);
        self.retries.timer_ns = None;
        self.early.timer_ns = None;
        Ok(())
    }

    pub(crate) fn wait_for_receiver<H: Host>(
        &mut self,
        settings: &QpSettings,
        timer_code: u8,
        now_ns: u64,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        if self.retries.rnr_until_ns.is_some() {
            return Ok(());
        }
        self.fruitless.refused_for_now = true;
        self.fruitless.ignored_answers.rnr_naks = self.fruitless.ignored_answers.rnr_naks.saturating_add(1);
        let (psn, retries_left, wait_ns) = (self.psns.acked, self.retries.rnr_left, rnr_timer_ns(timer_code));
        host.emit(&settings.context, QpEvent::ReceiverNotReady { psn, retries_left, wait_ns });
        //= statement:23
        //| An RNR NAK costs an RNR retry and no retry of the transport.
        if settings.rnr_retry != RNR_RETRY_INFINITE {
            if self.retries.rnr_left == 0 {
                return Err(SendFailure { status: WcStatus::RnrRetryExcErr, local: false });
            }
            self.retries.rnr_left -= 1;
        }
        self.rewind(settings, RetransmitReason::ReceiverNotReady, host);
        self.retries.timer_ns = None;
        self.early.timer_ns = None;
        //= statement:22
        //| The requester sends nothing before the time of the RNR code is over.
        self.retries.rnr_until_ns = Some(now_ns.saturating_add(wait_ns));
        Ok(())
    }

    /// Notes an answer for a PSN before the outstanding ones. Before the first PSN it means that the two
    /// sides do not count alike.
    #[cold]
    fn note_old(&mut self, psn: Psn) {
        let never = self.psns.acked == self.psns.first_psn;
        self.fruitless.ignored_answers.note(if never {
            IgnoredAnswer::NeverSent(psn)
        } else {
            IgnoredAnswer::Old(psn)
        });
    }

    /// Matches a response to the oldest outstanding request; `None` if it belongs to none any more.
    fn expected_response<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        now_ns: u64,
        host: &mut H,
    ) -> Result<Option<Outstanding>, SendFailure> {
        let psn = packet.bth().psn;
        let Some(front) = self.outstanding.front().copied() else {
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxUnexpectedResponse));
            return Ok(None);
        };
        if psn.is_before(self.psns.acked) || psn.is_before(front.first_psn) {
            self.note_old(psn);
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxStaleResponse));
            return Ok(None);
        }
        //= linux:rxe_comp.c#check_psn
        //| A response to a READ or to an atomic operation acknowledges everything before its request.
        self.acknowledge_before(settings, front.first_psn, now_ns, host);
        //= statement:19
        //| After a lost response the READ asks again from the first missing packet on.
        if psn != self.psns.acked {
            self.fruitless.ignored_answers.note(IgnoredAnswer::Later(psn));
            self.implied_nak(settings, now_ns, host)?;
            return Ok(None);
        }
        Ok(Some(front))
    }

    fn handle_read_response<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        let psn = packet.bth().psn;
        let Some(request) = self.expected_response(settings, packet, now_ns, host)? else {
            return Ok(());
        };
        let Some(wqe) = self.queue.entry(self.queue.head()) else { return Ok(()) };
        let bad = SendFailure { status: WcStatus::BadRespErr, local: false };
        let position = psn.since(request.first_psn) as u32;
        let expected = Position::of(position == 0, position + 1 == request.count);
        //= linux:rxe_comp.c#check_ack
        //| The responses of a READ come in the order First, Middle, Last.
        if packet.info().position != expected && !request.repeated {
            return Err(bad);
        }
        match wqe.info().class {
            WrClass::Read => {
                let offset = u64::from(psn.since(wqe.span.first_psn) as u32) * settings.mtu_bytes as u64;
                let left = u64::from(wqe.span.length_bytes).saturating_sub(offset);
                if packet.payload().len() as u64 != left.min(settings.mtu_bytes as u64) {
                    return Err(bad);
                }
                //= linux:rxe_comp.c#do_read
                //| The data of a READ response goes into the local buffers of the request.
                let stored = host.scatter(settings.context.pd, wqe.sges(), offset, packet.payload());
                if let Err(error) = stored {
                    self.failures.fault = Some(fault_of(settings.context.pd, wqe.sges(), error, true, host));
                    return Err(SendFailure { status: WcStatus::LocProtErr, local: false });
                }
            }
            WrClass::Confirmed if packet.payload().is_empty() => {}
            _ => return Err(bad),
        }
        self.accept_response(settings, &request, now_ns, host);
        Ok(())
    }

    fn handle_atomic_ack<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), SendFailure> {
        let Some(request) = self.expected_response(settings, packet, now_ns, host)? else {
            return Ok(());
        };
        let Some(wqe) = self.queue.entry(self.queue.head()) else { return Ok(()) };
        let is_atomic = wqe.info().class == WrClass::Atomic;
        let (true, Some(ack)) = (is_atomic, packet.atomic_ack_eth()) else {
            return Err(SendFailure { status: WcStatus::BadRespErr, local: false });
        };
        //= linux:rxe_comp.c#do_atomic
        //| The original value of an atomic operation is stored in the byte order of the host.
        let original = ack.original.to_ne_bytes();
        if let Err(error) = host.scatter(settings.context.pd, wqe.sges(), 0, &original) {
            self.failures.fault = Some(fault_of(settings.context.pd, wqe.sges(), error, true, host));
            return Err(SendFailure { status: WcStatus::LocProtErr, local: false });
        }
        self.accept_response(settings, &request, now_ns, host);
        Ok(())
    }

    fn accept_response<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &Outstanding,
        now_ns: u64,
        host: &mut H,
    ) {
        let reached = self.psns.acked.next();
        if reached == request.first_psn.plus(request.count) {
            self.outstanding.pop_front();
        }
        self.advance_to(settings, reached, now_ns, host);
    }
}

//! The responder of RC and XRC: a chain of checks in the order of the specification, then execution.

mod answered;
mod check;
mod duplicate;
mod lane;
#[cfg(any(test, kani))]
mod proofs;
mod refusal;

use super::inbound::{Inbound, InboundFault, PartialMessage};
use super::response::Responses;
use super::settings::QpSettings;
use crate::event::QpEvent;
use crate::host::{Counter, Host};
use crate::types::{Cause, DropReason, FailureDetail};
use crate::wire::{NakCode, OperationClass, Packet, Psn, Syndrome};

pub(crate) use check::{check_payload, check_range_length, packets_of};
use refusal::{RefusedRequest, RequestStopReason};

/// Error of a request that the responder refused: the queue pair goes to ERR once the NAK is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestRefusedError;

/// Responder state of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) expected: Psn,
    pub(crate) msn: u32,
    /// True if a sequence NAK or RNR NAK was sent; no further one is sent until the expected packet arrives.
    //= linux:rxe_resp.c#check_psn
    //| The responder sends no second sequence NAK until the expected packet has arrived.
    pub(crate) nak_outstanding: bool,
    pub(crate) inbound: Inbound,
    /// XRC SRQ that all packets of the message in progress name.
    pub(crate) message_srqn: Option<u32>,
    pub(crate) responses: Responses,
    pub(crate) communication_established: bool,
    /// Start of the responder, until a request out of turn has shown that one was executed.
    start: Option<ResponderStart>,
}

/// The start of a responder, about which the two sides may not agree.
#[derive(Debug, Clone, Copy)]
struct ResponderStart {
    /// PSN `rq_psn`.
    psn: Psn,
    /// PSN of the first request beyond it.
    beyond: Option<Psn>,
    explained: bool,
}

impl Responder {
    pub(crate) fn new() -> Responder {
        Responder {
            expected: Psn::new(0),
            msn: 0,
            nak_outstanding: false,
            inbound: Inbound::new(),
            message_srqn: None,
            responses: Responses::new(),
            communication_established: false,
            start: None,
        }
    }

    /// Starts the responder at INIT → RTR: the first request has PSN `rq_psn`.
    pub(crate) fn start(&mut self, rq_psn: Psn) {
        self.expected = rq_psn;
        self.start = Some(ResponderStart { psn: rq_psn, beyond: None, explained: false });
    }

    /// Logs once that no request has been executed since [`Responder::start`] and that this request is not
    /// the first one: after a mistake in the exchange of PSNs the peer gets answers that it cannot
    /// understand, or none.
    #[cold]
    fn log_start_mismatch<H: Host>(&mut self, settings: &QpSettings, packet: &Packet<'_>, host: &mut H) {
        let psn = packet.bth().psn;
        let (expected, msn) = (self.expected, self.msn);
        let Some(start) = self.start.as_mut().filter(|start| start.psn == expected && msn == 0) else {
            self.start = None;
            return;
        };
        let is_before = psn.is_before(expected);
        let reason = if settings.is_self_connected() && (is_before || start.beyond == Some(psn)) {
            DropReason::FromItself
        } else if is_before {
            DropReason::BeforeStart { expected }
        } else if start.beyond == Some(psn) {
            // A peer with the same PSNs would go back to the first one after the NAK.
            DropReason::BeyondStart { expected }
        } else {
            start.beyond.get_or_insert(psn);
            return;
        };
        if core::mem::replace(&mut start.explained, true) {
            return;
        }
        let Some(path) = settings.path.as_deref() else { return };
        let (source, opcode) = (path.flow.destination, packet.bth().opcode);
        host.log(&settings.context, Cause::PacketDropped { source, opcode, psn, reason });
    }

    /// Handles a request packet of the connected peer.
    ///
    /// # Errors
    /// Fails if the request was refused permanently; the NAK (if there is one), completion and event have
    /// been made.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), RequestRefusedError> {
        let psn = packet.bth().psn;
        let distance = psn.since(self.expected);
        if distance != 0 && self.start.is_some() {
            self.log_start_mismatch(settings, packet, host);
        }
        //= statement:11
        //| A gap is answered by one NAK 0x60 with the missing PSN, however many packets follow it.
        if distance > 0 {
            host.emit(&settings.context, QpEvent::OutOfSequence { psn, expected: self.expected });
            if !self.nak_outstanding {
                self.nak_outstanding = true;
                let syndrome = Syndrome::Nak(NakCode::Sequence);
                host.emit(&settings.context, QpEvent::NakSent { syndrome, psn: self.expected });
                self.responses.push_acknowledge(syndrome, self.expected, self.msn);
            }
            return Ok(());
        }
        //= statement:12
        //| A request with an older PSN is a duplicate, which is not executed again.
        if distance < 0 {
            let opcode = packet.bth().opcode;
            host.emit(&settings.context, QpEvent::DuplicateRequest { opcode, psn });
            self.handle_duplicate(settings, packet, host);
            return Ok(());
        }
        //= linux:rxe_resp.c#check_psn
        //| The expected packet permits the next sequence NAK.
        self.nak_outstanding = false;
        match self.accept(settings, packet, host) {
            Ok(()) => Ok(()),
            Err(RequestStopReason::Overloaded) => {
                // The first packet has arrived, so the PSNs agree.
                self.start = None;
                host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxMessageDropped));
                Ok(())
            }
            Err(RequestStopReason::NotReady) => {
                self.start = None;
                // Packets after this one are out of sequence now; the RNR NAK covers them too.
                self.nak_outstanding = true;
                //= linux:rxe_resp.c#check_resource
                //| A SEND without a receive request is answered by an RNR NAK, and nothing else changes.
                let syndrome = Syndrome::RnrNak { timer_code: settings.min_rnr_timer };
                host.emit(&settings.context, QpEvent::NakSent { syndrome, psn: self.expected });
                self.responses.push_acknowledge(syndrome, self.expected, self.msn);
                Ok(())
            }
            Err(RequestStopReason::Refuse(refused)) => {
                self.refuse(settings, packet, refused, host);
                Err(RequestRefusedError)
            }
        }
    }

    /// Ends a READ with a NAK because its memory was unregistered while it was being answered.
    pub(crate) fn refuse_read(&mut self, psn: Psn) {
        self.responses.drop_all();
        self.responses.push_acknowledge(Syndrome::Nak(NakCode::RemoteAccess), psn, self.msn);
    }

    /// Checks a request in the order of the specification, then executes it.
    fn accept<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), RequestStopReason> {
        //= linux:rxe_resp.c#rxe_receiver
        //| The order of the packets is checked first, then the right to the operation, then the length.
        self.check_sequence(packet)?;
        //= statement:10
        //| The right of the queue pair is checked before the right of the memory region.
        check::check_operation(settings, packet)?;
        check::check_length(settings, packet)?;
        match packet.info().class {
            OperationClass::Send | OperationClass::Write => self.accept_message(settings, packet, host),
            OperationClass::Read => self.accept_read(settings, packet, host),
            OperationClass::Atomic => self.accept_atomic(settings, packet, host),
            OperationClass::Flush => self.accept_flush(settings, packet, host),
            _ => Err(RefusedRequest::invalid("the opcode is not a request").into()),
        }
    }

    /// Executes a SEND or WRITE.
    fn accept_message<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), RequestStopReason> {
        if let Err(fault) = self.inbound.accept(settings, packet, host) {
            // The completion of an immediate reports memory that cannot be written, if a receive request
            // waits for it.
            if matches!(fault, InboundFault::RemoteMemory(_)) && packet.imm().is_some() {
                let _ = self.inbound.take_recv(settings, packet, host);
            }
            return Err(fault.into());
        }
        let psn = self.expected;
        self.expected = psn.next();
        self.message_srqn = packet.xrceth().map(|xrceth| xrceth.srqn);
        let ends = packet.info().position.ends();
        if ends {
            //= linux:rxe_resp.c#execute
            //| The message sequence number counts a SEND or WRITE when its last packet is executed.
            self.msn = (self.msn + 1) & 0xff_ffff;
        }
        //= linux:rxe_resp.c#acknowledge
        //| The responder acknowledges the packets that ask for it.
        if packet.bth().ack_request && ends {
            self.responses.acknowledge_message(settings, psn, self.msn, host);
        } else if packet.bth().ack_request {
            self.responses.push_acknowledge(Syndrome::ACK_UNLIMITED, psn, self.msn);
        }
        Ok(())
    }

    fn check_sequence(&self, packet: &Packet<'_>) -> Result<(), RequestStopReason> {
        //= linux:rxe_resp.c#check_op_seq
        //| A packet that does not continue the message in progress is an invalid request.
        self.inbound.expects(packet)?;
        //= statement:47
        //| Every request packet of XRC names the shared receive queue.
        let srqn = packet.xrceth().map(|xrceth| xrceth.srqn);
        if self.inbound.message != PartialMessage::None && srqn != self.message_srqn {
            let reason = "the packets of a message name different XRC SRQs";
            return Err(RefusedRequest::invalid(reason).into());
        }
        Ok(())
    }

    /// Answers a refused request with a NAK, and ends the receive request in use or else raises an event.
    #[cold]
    fn refuse<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        refused: RefusedRequest,
        host: &mut H,
    ) {
        let psn = packet.bth().psn;
        let syndrome = refused.code.map(Syndrome::Nak);
        if let Some(syndrome) = syndrome {
            host.emit(&settings.context, QpEvent::NakSent { syndrome, psn });
            self.responses.push_acknowledge(syndrome, psn, self.msn);
        }
        let detail = match refused.detail {
            FailureDetail::None => check::range_of(packet).map_or(FailureDetail::None, FailureDetail::Remote),
            detail => detail,
        };
        let syndrome = syndrome.map(Syndrome::byte);
        let cause = Cause::RequestRefused { syndrome, psn, reason: refused.reason, detail };
        host.log(&settings.context, cause);
        //= man:ibv_get_async_event
        //| QP_REQ_ERR and QP_ACCESS_ERR tell the program of a request that its queue pair refused.
        let has_completed = self.inbound.fail(settings, refused.status, host);
        if let (false, Some(event)) = (has_completed, refused.event) {
            host.event(&settings.context, event);
        }
    }
}

//! The responder of RC and XRC: a chain of checks in the order of the specification, then execution.

mod answered;
mod check;
mod duplicate;
mod message;

use super::response::Responses;
use super::settings::Settings;
use crate::event::QpEvent;
use crate::host::{Counter, Host, MemoryError, NoRecv, RecvWqe, RemoteKey};
use crate::types::{AsyncEventType, Cause, Detail, DropReason, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::{NakCode, Operation, Packet, Position, Psn, Syndrome};

use check::{check_length, check_operation};
pub(crate) use check::{check_payload, is_send, is_write, packets_of, room};

/// A message of which some packets have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    Idle,
    /// A SEND into the receive request taken at its first packet.
    Send {
        offset: u64,
    },
    /// A WRITE: where the next byte goes, and how many are to come.
    Write {
        rkey: u32,
        address: u64,
        remaining: u64,
        total: u32,
    },
    /// A SEND of an XRC target whose receive request another process has: only that one can go on.
    Elsewhere {
        offset: u64,
    },
}

/// The responder refused a request: the queue pair goes to ERR once the NAK is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal;

/// Responder state of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) expected: Psn,
    pub(crate) msn: u32,
    /// A sequence NAK or RNR NAK is out; no further one until the expected packet arrives.
    pub(crate) nak_outstanding: bool,
    pub(crate) inbound: Inbound,
    /// XRC SRQ that the message in progress names in all its packets.
    pub(crate) inbound_srqn: Option<u32>,
    pub(crate) recv: RecvWqe,
    pub(crate) responses: Responses,
    pub(crate) communication_established: bool,
    /// Where it began, until a request out of turn has shown that something was executed.
    start: Option<Start>,
}

/// The beginning of a responder, at which the two sides may not agree.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// `rq_psn`.
    psn: Psn,
    /// The first request that came beyond it.
    beyond: Option<Psn>,
    explained: bool,
}

/// What a refused request leads to.
struct Refused {
    /// None: the peer gets no answer.
    code: Option<NakCode>,
    /// Status of the receive request in use, if there is one.
    status: WcStatus,
    /// Event if there is none.
    event: Option<AsyncEventType>,
    reason: &'static str,
    /// The numbers behind it, if they are not the memory that the packet names.
    detail: Detail,
}

impl Refused {
    fn invalid(reason: &'static str) -> Refused {
        Refused {
            code: Some(NakCode::InvalidRequest),
            status: WcStatus::RemInvReqErr,
            event: Some(AsyncEventType::QpReqErr),
            reason,
            detail: Detail::None,
        }
    }

    /// The same with the numbers behind it.
    fn with(self, detail: Detail) -> Refused {
        Refused { detail, ..self }
    }

    fn access(error: MemoryError) -> Refused {
        if error == MemoryError::Misaligned {
            return Refused::invalid(error.reason());
        }
        Refused {
            code: Some(NakCode::RemoteAccess),
            status: WcStatus::RemAccessErr,
            event: Some(AsyncEventType::QpAccessErr),
            reason: error.reason(),
            detail: Detail::None,
        }
    }

    fn xrc() -> Refused {
        Refused {
            code: Some(NakCode::InvalidReadRequest),
            status: WcStatus::RemInvReqErr,
            event: Some(AsyncEventType::QpAccessErr),
            reason: "no such XRC SRQ in the target's domain",
            detail: Detail::None,
        }
    }
}

/// How a check ends the processing of a request.
enum Stop {
    /// No receive request is posted.
    NotReady,
    /// The responses in the queue must leave first; the packet is treated as lost.
    Overloaded,
    Refuse(Refused),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Stop {
        Stop::Refuse(refused)
    }
}

impl Responder {
    pub(crate) fn new() -> Responder {
        Responder {
            expected: Psn::new(0),
            msn: 0,
            nak_outstanding: false,
            inbound: Inbound::Idle,
            inbound_srqn: None,
            recv: RecvWqe::default(),
            responses: Responses::new(),
            communication_established: false,
            start: None,
        }
    }

    /// INIT → RTR: the first request carries `rq_psn`.
    pub(crate) fn start(&mut self, rq_psn: Psn) {
        self.expected = rq_psn;
        self.start = Some(Start { psn: rq_psn, beyond: None, explained: false });
    }

    /// Nothing has been executed since [`Responder::start`], and this request is not the first one: after a mistake in
    /// the exchange of PSNs the peer gets answers that it cannot understand, or none. Says so, once.
    #[cold]
    fn doubt_start<H: Host>(&mut self, settings: &Settings, packet: &Packet<'_>, host: &mut H) {
        let psn = packet.bth().psn;
        let (expected, msn) = (self.expected, self.msn);
        let Some(start) = self.start.as_mut().filter(|start| start.psn == expected && msn == 0) else {
            self.start = None;
            return;
        };
        let reason = if psn.is_before(expected) {
            DropReason::BeforeStart { expected }
        } else if start.beyond == Some(psn) {
            // A peer that counts alike goes back to the first one after our NAK.
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

    /// A receive request is in use by a partly received SEND.
    pub(crate) fn holds_recv(&self) -> bool {
        matches!(self.inbound, Inbound::Send { .. })
    }

    /// A request packet of the connected peer.
    ///
    /// # Errors
    /// The request was refused for good; the NAK (if there is one), completion and event have been made.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let psn = packet.bth().psn;
        let distance = psn.since(self.expected);
        if distance != 0 && self.start.is_some() {
            self.doubt_start(settings, packet, host);
        }
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
        if distance < 0 {
            let opcode = packet.bth().opcode;
            host.emit(&settings.context, QpEvent::DuplicateRequest { opcode, psn });
            self.handle_duplicate(settings, packet, host);
            return Ok(());
        }
        self.nak_outstanding = false;
        match self.accept(settings, packet, host) {
            Ok(()) => Ok(()),
            Err(Stop::Overloaded) => {
                let (reason, opcode) = (Counter::RxMessageDropped, packet.bth().opcode);
                host.emit(&settings.context, QpEvent::Dropped { reason, opcode, psn });
                Ok(())
            }
            Err(Stop::NotReady) => {
                // Packets behind this one are out of sequence now; the RNR NAK speaks for them too.
                self.nak_outstanding = true;
                let syndrome = Syndrome::RnrNak { timer_code: settings.min_rnr_timer };
                host.emit(&settings.context, QpEvent::NakSent { syndrome, psn: self.expected });
                self.responses.push_acknowledge(syndrome, self.expected, self.msn);
                Ok(())
            }
            Err(Stop::Refuse(refused)) => {
                self.refuse(settings, packet, refused, host);
                Err(Refusal)
            }
        }
    }

    fn refuse<H: Host>(&mut self, settings: &Settings, packet: &Packet<'_>, refused: Refused, host: &mut H) {
        let psn = packet.bth().psn;
        let syndrome = refused.code.map(Syndrome::Nak);
        if let Some(syndrome) = syndrome {
            host.emit(&settings.context, QpEvent::NakSent { syndrome, psn });
            self.responses.push_acknowledge(syndrome, psn, self.msn);
        }
        host.log(
            &settings.context,
            Cause::RequestRefused {
                syndrome: syndrome.map(Syndrome::byte),
                psn,
                reason: refused.reason,
                detail: match refused.detail {
                    Detail::None => check::range_of(packet).map_or(Detail::None, Detail::Remote),
                    detail => detail,
                },
            },
        );
        if self.holds_recv() {
            self.inbound = Inbound::Idle;
            self.complete_recv(settings, refused.status, host);
        } else if let Some(event) = refused.event {
            host.event(&settings.context, event);
        }
    }

    /// Memory went away while a READ of it was being answered: that is the last answer.
    pub(crate) fn refuse_read(&mut self, psn: Psn) {
        self.responses.drop_all();
        self.responses.push_acknowledge(Syndrome::Nak(NakCode::RemoteAccess), psn, self.msn);
    }

    /// Completes the receive request in use with an error status.
    pub(crate) fn complete_recv<H: Host>(&mut self, settings: &Settings, status: WcStatus, host: &mut H) {
        let completion = WorkCompletion {
            wr_id: self.recv.wr_id,
            status,
            opcode: WcOpcode::Recv,
            qp_num: settings.context.qpn.value(),
            src_qp: settings.destination.value(),
            ..WorkCompletion::default()
        };
        host.complete_recv(&settings.context, self.recv.cq, completion, false);
    }

    fn accept<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        self.check_sequence(packet)?;
        check_operation(settings, packet)?;
        check_length(settings, packet)?;
        let operation = packet.operation();
        match operation {
            Operation::SendFirst
            | Operation::SendMiddle
            | Operation::SendLast
            | Operation::SendLastImm
            | Operation::SendLastInvalidate
            | Operation::SendOnly
            | Operation::SendOnlyImm
            | Operation::SendOnlyInvalidate => self.accept_send(settings, packet, host)?,
            Operation::WriteFirst
            | Operation::WriteMiddle
            | Operation::WriteLast
            | Operation::WriteLastImm
            | Operation::WriteOnly
            | Operation::WriteOnlyImm => self.accept_write(settings, packet, host)?,
            Operation::ReadRequest => return self.accept_read(settings, packet, host),
            Operation::CompareSwap | Operation::FetchAdd => {
                return self.accept_atomic(settings, packet, host);
            }
            Operation::AtomicWrite => return self.accept_atomic_write(settings, packet, host),
            Operation::Flush => return self.accept_flush(settings, packet, host),
            _ => return Err(Refused::invalid("the opcode is not a request").into()),
        }
        let psn = self.expected;
        self.expected = psn.next();
        self.inbound_srqn = packet.xrceth().map(|xrceth| xrceth.srqn);
        if matches!(packet.info().position, Position::Last | Position::Only) {
            self.msn = (self.msn + 1) & 0xff_ffff;
        }
        if packet.bth().ack_request {
            self.responses.push_acknowledge(Syndrome::ACK_UNLIMITED, psn, self.msn);
        }
        Ok(())
    }

    fn check_sequence(&self, packet: &Packet<'_>) -> Result<(), Refused> {
        let position = packet.info().position;
        let starts = matches!(position, Position::First | Position::Only);
        let is_send = is_send(packet.operation());
        let legal = match self.inbound {
            Inbound::Idle => starts,
            Inbound::Send { .. } => !starts && is_send,
            Inbound::Write { .. } => !starts && is_write(packet.operation()),
            Inbound::Elsewhere { .. } => {
                return Err(Refused::invalid("another process has the message in progress"));
            }
        };
        if !legal {
            return Err(Refused::invalid("the opcode does not continue the message in progress"));
        }
        let srqn = packet.xrceth().map(|xrceth| xrceth.srqn);
        if self.inbound != Inbound::Idle && srqn != self.inbound_srqn {
            return Err(Refused::invalid("the packets of a message name different XRC SRQs"));
        }
        Ok(())
    }

    /// The key for remote memory that a packet uses, in the right protection domain.
    fn remote_key<H: Host>(
        settings: &Settings,
        packet: &Packet<'_>,
        rkey: u32,
        host: &mut H,
    ) -> Result<RemoteKey, Refused> {
        let pd = match packet.xrceth() {
            Some(xrceth) => {
                host.srq_protection_domain(&settings.context, xrceth.srqn).map_err(|_| Refused::xrc())?
            }
            None => settings.context.pd,
        };
        Ok(RemoteKey { rkey, pd, qpn: settings.context.qpn })
    }

    fn take_recv<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        let srqn = packet.xrceth().map(|xrceth| xrceth.srqn);
        host.take_recv(&settings.context, srqn, &mut self.recv).map_err(|error| match error {
            NoRecv::Empty => Stop::NotReady,
            NoRecv::NoSuchSrq => Stop::Refuse(Refused::xrc()),
        })
    }
}

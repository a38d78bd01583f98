//! The receiving side of UC: accept what is in sequence, drop the rest of a broken message silently.

use super::post::MAX_MESSAGE_BYTES;
use super::requester::fault_of;
use super::responder::{Inbound, check_payload, is_send, is_write, room};
use super::settings::Settings;
use crate::event::QpEvent;
use crate::host::{Counter, Host, MemoryError, NoRecv, RecvWqe, RemoteKey};
use crate::types::{Access, Cause, Detail, WcFlags, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::{Packet, Position, Psn};

/// The receive request in use cannot hold its message: the queue pair goes to ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferFailure {
    pub(crate) status: WcStatus,
    pub(crate) detail: Detail,
}

impl BufferFailure {
    /// The memory of a receive request cannot be stored into.
    #[cold]
    pub(crate) fn of_memory<H: Host>(recv: &RecvWqe, error: MemoryError, host: &mut H) -> BufferFailure {
        let fault = fault_of(recv.pd, &recv.sges, error, true, host);
        BufferFailure { status: WcStatus::LocProtErr, detail: Detail::Receive { wr_id: recv.wr_id, fault } }
    }
}

#[derive(Debug)]
pub(crate) struct UnreliableReceiver {
    pub(crate) expected: Psn,
    inbound: Inbound,
    pub(crate) recv: RecvWqe,
    /// `recv` was taken and not yet completed: the next SEND uses it.
    pub(crate) recv_held: bool,
    /// The rest of the message is dropped, until a First or Only.
    dropping: bool,
    pub(crate) communication_established: bool,
}

/// Why the rest of a message is dropped.
enum Drop {
    Silently(Counter, &'static str, Detail),
    Fail(BufferFailure),
}

impl UnreliableReceiver {
    pub(crate) fn new() -> UnreliableReceiver {
        UnreliableReceiver {
            expected: Psn::new(0),
            inbound: Inbound::Idle,
            recv: RecvWqe::default(),
            recv_held: false,
            dropping: false,
            communication_established: false,
        }
    }

    pub(crate) fn start(&mut self, rq_psn: Psn) {
        self.expected = rq_psn;
    }

    /// A request packet.
    ///
    /// # Errors
    /// The message does not fit its receive buffers; nothing has been completed yet.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), BufferFailure> {
        let psn = packet.bth().psn;
        let starts = matches!(packet.info().position, Position::First | Position::Only);
        if starts {
            // Resynchronise at any PSN; a message in progress is given up, its receive request kept.
            self.dropping = false;
            self.inbound = Inbound::Idle;
        } else if psn != self.expected || self.dropping {
            if !self.dropping {
                let (reason, opcode) = (Counter::RxMessageDropped, packet.bth().opcode);
                host.emit(&settings.context, QpEvent::OutOfSequence { psn, expected: self.expected });
                host.emit(&settings.context, QpEvent::Dropped { reason, opcode, psn });
                let reason = "a packet of it was lost, or overtaken by another";
                host.log(
                    &settings.context,
                    Cause::MessageDropped { psn: self.expected, reason, detail: Detail::None },
                );
            }
            self.dropping = true;
            self.inbound = Inbound::Idle;
            return Ok(());
        }
        self.expected = psn.next();
        match self.accept(settings, packet, host) {
            Ok(()) => Ok(()),
            Err(Drop::Silently(counter, reason, detail)) => {
                self.dropping = true;
                self.inbound = Inbound::Idle;
                let opcode = packet.bth().opcode;
                host.emit(&settings.context, QpEvent::Dropped { reason: counter, opcode, psn });
                host.log(&settings.context, Cause::MessageDropped { psn, reason, detail });
                Ok(())
            }
            Err(Drop::Fail(failure)) => Err(failure),
        }
    }

    fn accept<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Drop> {
        check_payload(settings, packet)
            .map_err(|(reason, detail)| Drop::Silently(Counter::RxBadLength, reason, detail))?;
        let operation = packet.operation();
        let continues = match self.inbound {
            Inbound::Idle => true,
            Inbound::Send { .. } => is_send(operation),
            Inbound::Write { .. } => is_write(operation),
            Inbound::Elsewhere { .. } => false,
        };
        if !continues {
            return Err(dropped("the opcode does not continue the message in progress"));
        }
        if is_write(operation) {
            self.accept_write(settings, packet, host)
        } else {
            self.accept_send(settings, packet, host)
        }
    }

    fn take_recv<H: Host>(&mut self, settings: &Settings, host: &mut H) -> Result<(), Drop> {
        if self.recv_held {
            return Ok(());
        }
        match host.take_recv(&settings.context, None, &mut self.recv) {
            Ok(()) => {
                self.recv_held = true;
                Ok(())
            }
            Err(NoRecv::Empty | NoRecv::NoSuchSrq) => {
                Err(Drop::Silently(Counter::RxNoReceive, "no receive request is posted", Detail::None))
            }
        }
    }

    fn accept_send<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Drop> {
        let offset = match self.inbound {
            Inbound::Send { offset } => offset,
            _ if matches!(packet.info().position, Position::First | Position::Only) => {
                self.take_recv(settings, host)?;
                0
            }
            _ => return Err(dropped("the message's first packet was lost")),
        };
        let end = offset + packet.payload().len() as u64;
        if end > self.recv.length_bytes {
            let detail = room(&self.recv, end, packet);
            return Err(Drop::Fail(BufferFailure { status: WcStatus::LocLenErr, detail }));
        }
        host.scatter(self.recv.pd, &self.recv.sges, offset, packet.payload())
            .map_err(|error| Drop::Fail(BufferFailure::of_memory(&self.recv, error, host)))?;
        if matches!(packet.info().position, Position::First | Position::Middle) {
            self.inbound = Inbound::Send { offset: end };
            return Ok(());
        }
        self.complete(settings, packet, WcOpcode::Recv, u32::try_from(end).unwrap_or(u32::MAX), host);
        Ok(())
    }

    fn accept_write<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Drop> {
        if !settings.access.contains(Access::REMOTE_WRITE) {
            return Err(dropped("the queue pair's access flags do not allow RDMA WRITE"));
        }
        let (rkey, address, remaining, total) = match (self.inbound, packet.reth()) {
            (Inbound::Write { rkey, address, remaining, total }, _) => (rkey, address, remaining, total),
            (_, Some(reth)) => (reth.rkey, reth.address, u64::from(reth.length), reth.length),
            (_, None) => return Err(dropped("the message's first packet was lost")),
        };
        if u64::from(total) > MAX_MESSAGE_BYTES {
            return Err(dropped("the RETH length exceeds 2^31"));
        }
        let payload = packet.payload();
        let bytes = payload.len() as u64;
        let ends = matches!(packet.info().position, Position::Last | Position::Only);
        if (ends && bytes != remaining) || (!ends && remaining <= bytes) {
            return Err(dropped("the payloads do not add up to the RETH length"));
        }
        let key = RemoteKey { rkey, pd: settings.context.pd, qpn: settings.context.qpn };
        if packet.reth().is_some() && total > 0 {
            host.check_remote(key, address, u64::from(total), Access::REMOTE_WRITE)
                .map_err(|error| dropped(error.reason()))?;
        }
        if !payload.is_empty() {
            host.remote_write(key, address, payload).map_err(|error| dropped(error.reason()))?;
        }
        if !ends {
            self.inbound = Inbound::Write {
                rkey,
                address: address.wrapping_add(bytes),
                remaining: remaining - bytes,
                total,
            };
            return Ok(());
        }
        self.inbound = Inbound::Idle;
        if packet.imm().is_some() {
            self.take_recv(settings, host)?;
            self.complete(settings, packet, WcOpcode::RecvRdmaWithImm, total, host);
        }
        Ok(())
    }

    fn complete<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
        host: &mut H,
    ) {
        self.inbound = Inbound::Idle;
        self.recv_held = false;
        let mut completion = WorkCompletion {
            wr_id: self.recv.wr_id,
            status: WcStatus::Success,
            opcode,
            byte_len,
            qp_num: settings.context.qpn.value(),
            src_qp: settings.destination.value(),
            ..WorkCompletion::default()
        };
        if let Some(imm) = packet.imm() {
            completion.flags |= WcFlags::WITH_IMM;
            completion.imm_data = imm.0;
        }
        host.complete_recv(&settings.context, self.recv.cq, completion, packet.bth().solicited);
    }
}

fn dropped(reason: &'static str) -> Drop {
    Drop::Silently(Counter::RxMessageDropped, reason, Detail::None)
}

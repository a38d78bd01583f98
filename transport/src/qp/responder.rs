//! The responder of RC and XRC: a chain of checks in the order of the specification, then execution.

use super::response::{ReadRequest, Replay, ReplayKind, Responses};
use super::settings::Settings;
use crate::host::{Counter, Host, MemoryError, NoRecv, RecvWqe, RemoteKey};
use crate::types::{
    Access, AsyncEventType, AtomicOperation, Cause, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};
use crate::wire::{NakCode, Operation, Packet, Position, Psn, Syndrome};

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
    nak_outstanding: bool,
    pub(crate) inbound: Inbound,
    pub(crate) recv: RecvWqe,
    pub(crate) responses: Responses,
    pub(crate) communication_established: bool,
}

/// What a refused request leads to.
struct Refused {
    code: NakCode,
    /// Status of the receive request in use, if there is one.
    status: WcStatus,
    /// Event if there is none.
    event: Option<AsyncEventType>,
    reason: &'static str,
}

impl Refused {
    fn invalid(reason: &'static str) -> Refused {
        Refused {
            code: NakCode::InvalidRequest,
            status: WcStatus::RemInvReqErr,
            event: Some(AsyncEventType::QpReqErr),
            reason,
        }
    }

    fn access(error: MemoryError) -> Refused {
        if error == MemoryError::Misaligned {
            return Refused::invalid(error.reason());
        }
        Refused {
            code: NakCode::RemoteAccess,
            status: WcStatus::RemAccessErr,
            event: Some(AsyncEventType::QpAccessErr),
            reason: error.reason(),
        }
    }

    fn xrc() -> Refused {
        Refused {
            code: NakCode::InvalidReadRequest,
            status: WcStatus::RemInvReqErr,
            event: Some(AsyncEventType::QpAccessErr),
            reason: "no such XRC SRQ in the target's domain",
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
            recv: RecvWqe::default(),
            responses: Responses::new(),
            communication_established: false,
        }
    }

    /// INIT → RTR: the first request carries `rq_psn`.
    pub(crate) fn start(&mut self, rq_psn: Psn) {
        self.expected = rq_psn;
    }

    /// A receive request is in use by a partly received SEND.
    pub(crate) fn holds_recv(&self) -> bool {
        matches!(self.inbound, Inbound::Send { .. })
    }

    /// A request packet of the connected peer.
    ///
    /// # Errors
    /// The request was refused for good; the NAK, completion and event have been made.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let psn = packet.bth().psn;
        let distance = psn.since(self.expected);
        if distance > 0 {
            host.count(Counter::RxOutOfSequence, 1);
            if !self.nak_outstanding {
                self.nak_outstanding = true;
                host.count(Counter::TxNakSequence, 1);
                let syndrome = Syndrome::Nak(NakCode::Sequence);
                self.responses.push_acknowledge(syndrome, self.expected, self.msn);
            }
            return Ok(());
        }
        if distance < 0 {
            host.count(Counter::RxDuplicateRequest, 1);
            self.handle_duplicate(settings, packet, host);
            return Ok(());
        }
        self.nak_outstanding = false;
        match self.accept(settings, packet, host) {
            Ok(()) => Ok(()),
            Err(Stop::Overloaded) => {
                host.count(Counter::RxMessageDropped, 1);
                Ok(())
            }
            Err(Stop::NotReady) => {
                // Packets behind this one are out of sequence now; the RNR NAK speaks for them too.
                self.nak_outstanding = true;
                host.count(Counter::TxRnrNak, 1);
                let syndrome = Syndrome::RnrNak { timer_code: settings.min_rnr_timer };
                self.responses.push_acknowledge(syndrome, self.expected, self.msn);
                Ok(())
            }
            Err(Stop::Refuse(refused)) => {
                self.refuse(settings, psn, refused, host);
                Err(Refusal)
            }
        }
    }

    fn refuse<H: Host>(&mut self, settings: &Settings, psn: Psn, refused: Refused, host: &mut H) {
        let syndrome = Syndrome::Nak(refused.code);
        host.count(
            match refused.code {
                NakCode::RemoteAccess => Counter::TxNakAccess,
                NakCode::RemoteOperation => Counter::TxNakOperation,
                _ => Counter::TxNakInvalid,
            },
            1,
        );
        self.responses.push_acknowledge(syndrome, psn, self.msn);
        host.explain(
            &settings.context,
            Cause::RequestRefused { syndrome: syndrome.byte(), psn, reason: refused.reason },
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
        };
        if legal {
            Ok(())
        } else {
            Err(Refused::invalid("the opcode does not continue the message in progress"))
        }
    }

    /// The key for remote memory that a packet uses, in the right protection domain.
    fn remote_key<H: Host>(
        settings: &Settings,
        packet: &Packet<'_>,
        rkey: u32,
        host: &mut H,
    ) -> Result<RemoteKey, Refused> {
        let pd = match packet.xrceth() {
            Some(xrceth) => host.xrc_domain(&settings.context, xrceth.srqn).map_err(|_| Refused::xrc())?,
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

    fn accept_send<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        let offset = match self.inbound {
            Inbound::Send { offset } => offset,
            _ => {
                self.take_recv(settings, packet, host)?;
                self.inbound = Inbound::Send { offset: 0 };
                0
            }
        };
        let payload = packet.payload();
        let end = offset + payload.len() as u64;
        if end > self.recv.length_bytes {
            let mut refused = Refused::invalid("the message is longer than the receive buffers");
            refused.status = WcStatus::LocLenErr;
            return Err(refused.into());
        }
        if let Err(error) = host.scatter(self.recv.pd, &self.recv.sges, offset, payload) {
            return Err(Stop::Refuse(Refused {
                code: NakCode::RemoteOperation,
                status: WcStatus::LocProtErr,
                event: None,
                reason: error.reason(),
            }));
        }
        if matches!(packet.info().position, Position::First | Position::Middle) {
            self.inbound = Inbound::Send { offset: end };
            return Ok(());
        }
        let mut completion = WorkCompletion {
            wr_id: self.recv.wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: u32::try_from(end).unwrap_or(u32::MAX),
            qp_num: settings.context.qpn.value(),
            src_qp: settings.destination.value(),
            ..WorkCompletion::default()
        };
        if let Some(ieth) = packet.ieth() {
            let key = Self::remote_key(settings, packet, ieth.rkey, host)?;
            if let Err(error) = host.invalidate(key) {
                let mut refused = Refused::access(error);
                refused.status = WcStatus::LocQpOpErr;
                return Err(refused.into());
            }
            completion.flags |= WcFlags::WITH_INV;
            completion.invalidated_rkey = ieth.rkey;
        }
        if let Some(imm) = packet.imm() {
            completion.flags |= WcFlags::WITH_IMM;
            completion.imm_data = imm.0;
        }
        self.inbound = Inbound::Idle;
        host.complete_recv(&settings.context, self.recv.cq, completion, packet.bth().solicited);
        Ok(())
    }

    fn accept_write<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        let payload = packet.payload();
        let (rkey, address, remaining, total) = match self.inbound {
            Inbound::Write { rkey, address, remaining, total } => (rkey, address, remaining, total),
            _ => {
                let Some(reth) = packet.reth() else {
                    return Err(Refused::invalid("WRITE without RETH").into());
                };
                (reth.rkey, reth.address, u64::from(reth.length), reth.length)
            }
        };
        check_remaining(settings, packet, remaining)?;
        let with_imm = packet.imm();
        let key = Self::remote_key(settings, packet, rkey, host)?;
        // The whole range at the first packet; at the last one before it takes a receive request.
        let range_bytes = match (packet.reth().is_some(), with_imm.is_some()) {
            (true, _) => u64::from(total),
            (false, true) => remaining,
            (false, false) => 0,
        };
        if range_bytes > 0 {
            host.check_remote(key, address, range_bytes, Access::REMOTE_WRITE).map_err(Refused::access)?;
        }
        if with_imm.is_some() {
            self.take_recv(settings, packet, host)?;
        }
        if !payload.is_empty()
            && let Err(error) = host.remote_write(key, address, payload)
        {
            if with_imm.is_some() {
                // The receive request was taken for this packet: it ends with the message.
                self.inbound = Inbound::Send { offset: 0 };
            }
            return Err(Refused::access(error).into());
        }
        if matches!(packet.info().position, Position::First | Position::Middle) {
            self.inbound = Inbound::Write {
                rkey,
                address: address.wrapping_add(payload.len() as u64),
                remaining: remaining - payload.len() as u64,
                total,
            };
            return Ok(());
        }
        self.inbound = Inbound::Idle;
        if let Some(imm) = with_imm {
            let completion = WorkCompletion {
                wr_id: self.recv.wr_id,
                status: WcStatus::Success,
                opcode: WcOpcode::RecvRdmaWithImm,
                byte_len: total,
                imm_data: imm.0,
                qp_num: settings.context.qpn.value(),
                src_qp: settings.destination.value(),
                flags: WcFlags::WITH_IMM,
                ..WorkCompletion::default()
            };
            host.complete_recv(&settings.context, self.recv.cq, completion, packet.bth().solicited);
        }
        Ok(())
    }

    /// Requests that are answered by a response of their own need a place in the queue.
    fn check_resources(&self, settings: &Settings) -> Result<(), Stop> {
        if settings.max_dest_rd_atomic == 0 {
            return Err(Refused::invalid("max_dest_rd_atomic is 0").into());
        }
        if self.responses.is_full(settings.max_dest_rd_atomic) {
            return Err(Stop::Overloaded);
        }
        Ok(())
    }

    fn remember(&mut self, settings: &Settings, count: u32, kind: ReplayKind) {
        let replay = Replay { first_psn: self.expected, count, kind };
        self.responses.remember(replay, settings.max_dest_rd_atomic);
        self.expected = self.expected.plus(count);
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    fn accept_read<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        self.check_resources(settings)?;
        let Some(reth) = packet.reth() else {
            return Err(Refused::invalid("READ without RETH").into());
        };
        let key = if reth.length == 0 {
            RemoteKey { rkey: reth.rkey, pd: settings.context.pd, qpn: settings.context.qpn }
        } else {
            let key = Self::remote_key(settings, packet, reth.rkey, host)?;
            host.check_remote(key, reth.address, u64::from(reth.length), Access::REMOTE_READ)
                .map_err(Refused::access)?;
            key
        };
        let count = packets_of(reth.length, settings.mtu_bytes);
        let request = ReadRequest {
            key,
            first_psn: self.expected,
            address: reth.address,
            length_bytes: reth.length,
            count,
        };
        let kind = ReplayKind::Read { key, address: reth.address, length_bytes: reth.length };
        self.remember(settings, count, kind);
        self.responses.push_read(request, self.msn);
        Ok(())
    }

    fn accept_atomic<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        self.check_resources(settings)?;
        let Some(eth) = packet.atomic_eth() else {
            return Err(Refused::invalid("atomic without AtomicETH").into());
        };
        let operation = if packet.operation() == Operation::CompareSwap {
            AtomicOperation::CompareSwap { compare: eth.compare, swap: eth.swap_or_add }
        } else {
            AtomicOperation::FetchAdd { add: eth.swap_or_add }
        };
        if eth.address % 8 != 0 {
            return Err(Refused::access(MemoryError::Misaligned).into());
        }
        let key = Self::remote_key(settings, packet, eth.rkey, host)?;
        let original = host.remote_atomic(key, eth.address, operation).map_err(Refused::access)?;
        let psn = self.expected;
        self.remember(settings, 1, ReplayKind::Atomic { original });
        self.responses.push_atomic(psn, original, self.msn);
        Ok(())
    }

    fn accept_atomic_write<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        self.check_resources(settings)?;
        let (Some(reth), Ok(data)) = (packet.reth(), <[u8; 8]>::try_from(packet.payload())) else {
            return Err(Refused::invalid("ATOMIC WRITE carries exactly 8 bytes").into());
        };
        if reth.length != 8 {
            return Err(Refused::invalid("ATOMIC WRITE carries exactly 8 bytes").into());
        }
        if reth.address % 8 != 0 {
            return Err(Refused::access(MemoryError::Misaligned).into());
        }
        let key = Self::remote_key(settings, packet, reth.rkey, host)?;
        host.remote_atomic_write(key, reth.address, data).map_err(Refused::access)?;
        let psn = self.expected;
        self.remember(settings, 1, ReplayKind::Empty);
        self.responses.push_empty(psn, self.msn);
        Ok(())
    }

    fn accept_flush<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        self.check_resources(settings)?;
        let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) else {
            return Err(Refused::invalid("FLUSH without FETH or RETH").into());
        };
        let range = match feth.selectivity {
            0 => Some((reth.address, u64::from(reth.length))),
            1 => None,
            _ => return Err(Refused::invalid("FLUSH with a reserved selectivity").into()),
        };
        let key = Self::remote_key(settings, packet, reth.rkey, host)?;
        host.remote_flush(key, range, flush_access(feth.placement)).map_err(Refused::access)?;
        let psn = self.expected;
        self.remember(settings, 1, ReplayKind::Empty);
        self.responses.push_empty(psn, self.msn);
        Ok(())
    }

    /// A request that was executed before: acknowledge or replay, never execute.
    fn handle_duplicate<H: Host>(&mut self, settings: &Settings, packet: &Packet<'_>, host: &mut H) {
        let psn = packet.bth().psn;
        let operation = packet.operation();
        let takes_place = operation == Operation::ReadRequest || is_saved(operation);
        if takes_place && self.responses.is_full(settings.max_dest_rd_atomic) {
            host.count(Counter::RxMessageDropped, 1);
            return;
        }
        match operation {
            Operation::ReadRequest => self.replay_read(settings, packet, host),
            _ if is_saved(operation) => match self.responses.replay_of(psn).map(|replay| replay.kind) {
                Some(ReplayKind::Atomic { original }) => {
                    self.responses.replay_saved(psn, Some(original), self.msn);
                }
                Some(ReplayKind::Empty) => self.responses.replay_saved(psn, None, self.msn),
                _ => host.count(Counter::RxReplayMissed, 1),
            },
            _ => {
                let ends = matches!(packet.info().position, Position::Last | Position::Only);
                if packet.bth().ack_request || ends {
                    let newest = self.expected.minus(1);
                    self.responses.push_acknowledge(Syndrome::ACK_UNLIMITED, newest, self.msn);
                }
            }
        }
    }

    fn replay_read<H: Host>(&mut self, settings: &Settings, packet: &Packet<'_>, host: &mut H) {
        let psn = packet.bth().psn;
        let found = self.responses.replay_of(psn);
        let (Some(reth), Some(replay)) = (packet.reth(), found) else {
            host.count(Counter::RxReplayMissed, 1);
            return;
        };
        let ReplayKind::Read { key, address, length_bytes } = replay.kind else {
            host.count(Counter::RxReplayMissed, 1);
            return;
        };
        // It may ask for the rest only, but never for more than the original did.
        let skipped = u64::from(psn.since(replay.first_psn) as u32) * settings.mtu_bytes as u64;
        let inside = reth.rkey == key.rkey
            && reth.address == address.wrapping_add(skipped)
            && u64::from(reth.length) + skipped <= u64::from(length_bytes);
        let valid = inside
            && (reth.length == 0
                || host.check_remote(key, reth.address, u64::from(reth.length), Access::REMOTE_READ).is_ok());
        if !valid {
            host.count(Counter::RxReplayMissed, 1);
            return;
        }
        let count = packets_of(reth.length, settings.mtu_bytes);
        let request =
            ReadRequest { key, first_psn: psn, address: reth.address, length_bytes: reth.length, count };
        self.responses.replay_read(request, self.msn);
    }
}

/// Whether an operation is part of a SEND.
pub(crate) fn is_send(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::SendFirst
            | Operation::SendMiddle
            | Operation::SendLast
            | Operation::SendLastImm
            | Operation::SendLastInvalidate
            | Operation::SendOnly
            | Operation::SendOnlyImm
            | Operation::SendOnlyInvalidate
    )
}

/// Whether an operation is part of an RDMA WRITE.
pub(crate) fn is_write(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::WriteFirst
            | Operation::WriteMiddle
            | Operation::WriteLast
            | Operation::WriteLastImm
            | Operation::WriteOnly
            | Operation::WriteOnlyImm
    )
}

/// Whether the answer to an operation is saved, because it must not be executed twice.
fn is_saved(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite | Operation::Flush
    )
}

/// PSNs that `length_bytes` take: at least one.
pub(crate) fn packets_of(length_bytes: u32, mtu_bytes: usize) -> u32 {
    length_bytes.div_ceil(mtu_bytes.max(1) as u32).max(1)
}

fn flush_access(placement: u8) -> Access {
    let mut access = Access::empty();
    access.set(Access::FLUSH_GLOBAL, placement & 1 != 0);
    access.set(Access::FLUSH_PERSISTENT, placement & 2 != 0);
    access
}

/// The queue pair's access flags gate the kind of operation: NAK "invalid request" without them.
fn check_operation(settings: &Settings, packet: &Packet<'_>) -> Result<(), Refused> {
    let needed = match packet.operation() {
        Operation::ReadRequest => Access::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => Access::REMOTE_ATOMIC,
        Operation::AtomicWrite => Access::REMOTE_WRITE,
        Operation::Flush => {
            let needed = packet.feth().map_or(Access::empty(), |feth| flush_access(feth.placement));
            if needed.is_empty() {
                return Err(Refused::invalid("FLUSH without a placement type"));
            }
            needed
        }
        operation if is_write(operation) => Access::REMOTE_WRITE,
        _ => Access::empty(),
    };
    if settings.access.contains(needed) {
        Ok(())
    } else {
        Err(Refused::invalid("the queue pair's access flags do not allow the operation"))
    }
}

/// First and middle packets are full; last packets are not empty; nothing exceeds the path MTU.
pub(crate) fn check_payload(settings: &Settings, packet: &Packet<'_>) -> Result<(), &'static str> {
    let bytes = packet.payload().len();
    let mtu = settings.mtu_bytes;
    let legal = match packet.info().position {
        Position::First | Position::Middle => bytes == mtu && packet.bth().pad_count == 0,
        Position::Last => (1..=mtu).contains(&bytes),
        Position::Only => bytes <= mtu,
    };
    let padded = usize::from(packet.bth().pad_count) == bytes.wrapping_neg() & 3;
    if legal && padded { Ok(()) } else { Err("the payload length does not fit the opcode and path MTU") }
}

fn check_length(settings: &Settings, packet: &Packet<'_>) -> Result<(), Refused> {
    check_payload(settings, packet).map_err(Refused::invalid)?;
    if packet.reth().is_some_and(|reth| reth.length > 1 << 31) {
        return Err(Refused::invalid("the RETH length exceeds 2^31"));
    }
    Ok(())
}

/// A WRITE's packets add up to the RETH length.
fn check_remaining(settings: &Settings, packet: &Packet<'_>, remaining: u64) -> Result<(), Refused> {
    let bytes = packet.payload().len() as u64;
    let ends = matches!(packet.info().position, Position::Last | Position::Only);
    let legal =
        if ends { bytes == remaining } else { bytes == settings.mtu_bytes as u64 && remaining > bytes };
    if legal { Ok(()) } else { Err(Refused::invalid("the payloads do not add up to the RETH length")) }
}

//! The side that receives messages (DCT): executes those of each stream of each initiator in the order of
//! their numbers, each once.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use super::answers::{DcAnswer, DcAnswers};
use super::header::{DcHeader, DcPacketKind, DcReason, HEADER_BYTES, OPERAND_BYTES};
use crate::host::{CountedOperation, Host, RecvWqe, RemoteKey, Transmit};
use crate::path::Arrival;
use crate::qp::outbound::Progress;
use crate::qp::settings::QpSettings;
use crate::qp::srd::return_path;
use crate::types::{
    Access, AsyncEventType, AtomicOperation, MAX_MESSAGE_BYTES, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};
use crate::wire::{Psn, Qpn};

/// Largest number of message sequences that are remembered; the one that was silent longest makes room.
const MAX_SEQUENCES: usize = 4096;
/// Largest number of results of atomics that are remembered of one sequence: more than may be outstanding
/// there.
const MAX_VALUES: usize = 256;
/// Longest lifetime of a packet in nanoseconds: a packet that seems to be of a sequence older than that comes
/// from a host whose clock was reset.
const LONGEST_LIFE_NS: u64 = 60_000_000_000;
/// Smallest part length in bytes, which bounds the number of parts of a message.
const MIN_PART_BYTES: u16 = 64;

/// A packet that arrived.
pub(super) struct DcArrival<'a> {
    pub(super) from: (IpAddr, Qpn),
    pub(super) arrival: &'a Arrival<'a>,
    pub(super) header: DcHeader,
    pub(super) data: &'a [u8],
    pub(super) now_ns: u64,
}

/// The message whose parts are arriving.
#[derive(Debug)]
struct CurrentMessage {
    kind: DcPacketKind,
    total: u32,
    part_bytes: u16,
    /// Receive request of a SEND.
    receive: Option<RecvWqe>,
}

/// The state of the message sequence from one stream of an initiator.
#[derive(Debug)]
struct InitiatorSequence {
    epoch: u64,
    /// Number of the next message: all before it have been executed.
    next: u64,
    /// Number of parts of that message that have been executed.
    part: u32,
    current: Option<CurrentMessage>,
    /// Results of atomics whose answers may have been lost.
    values: BTreeMap<u64, u64>,
    refused: Option<(u64, DcReason)>,
    /// True if the initiator was notified that a part is missing.
    behind_sent: bool,
    last_received_ns: u64,
}

/// Key of a stream of an initiator, as packets name it.
type StreamKey = (IpAddr, Qpn, u16);

/// The state of a target.
#[derive(Debug)]
pub(in crate::qp) struct Target {
    access_key: u64,
    sequences: BTreeMap<StreamKey, InitiatorSequence>,
    answers: DcAnswers,
    next_psn: Psn,
}

/// Answer to a packet.
enum DcOutcome {
    /// The progress of the sequence.
    Ack,
    /// The progress of the sequence, and that the next part is missing.
    Behind,
    NotReady,
    /// The memory that a READ asks for.
    Data,
    Value(u64),
    Refused(u64, DcReason),
    Nothing,
}

impl Target {
    pub(super) fn new(access_key: u64) -> Target {
        Target {
            access_key,
            sequences: BTreeMap::new(),
            answers: DcAnswers::default(),
            next_psn: Psn::new(0),
        }
    }

    pub(super) const fn access_key(&self) -> u64 {
        self.access_key
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        self.answers.transmit(settings, &mut self.next_psn, host, sink)
    }

    /// Handles a part of a message, or a request for a part of memory.
    pub(super) fn handle<H: Host>(&mut self, settings: &QpSettings, incoming: &DcArrival<'_>, host: &mut H) {
        let Some(length) = well_formed(settings, incoming) else { return };
        let name = (incoming.from.0, incoming.from.1, incoming.header.stream);
        let access_key = self.access_key;
        let Some(sequence) = self.sequence_of(settings, name, incoming, host) else { return };
        let outcome = sequence.take(settings, access_key, incoming, length, host);
        let (message, part) = (sequence.next, sequence.part);
        let header = incoming.header;
        let said = match outcome {
            DcOutcome::Ack => DcHeader { kind: DcPacketKind::Ack, message, part, ..header },
            DcOutcome::Behind => DcHeader { kind: DcPacketKind::Behind, message, part, ..header },
            DcOutcome::NotReady => DcHeader {
                kind: DcPacketKind::NotReady,
                message,
                part,
                rnr_timer: settings.min_rnr_timer,
                ..header
            },
            DcOutcome::Data => DcHeader { kind: DcPacketKind::Data, ..header },
            DcOutcome::Value(_) => DcHeader { kind: DcPacketKind::Value, ..header },
            DcOutcome::Refused(message, reason) => {
                DcHeader { kind: DcPacketKind::Refused, reason: reason as u8, message, part: 0, ..header }
            }
            DcOutcome::Nothing => return,
        };
        let value = if let DcOutcome::Value(value) = outcome { value } else { 0 };
        let path = return_path(incoming.arrival.flow);
        self.answers.push(DcAnswer { path, to: incoming.from.1, header: said, value });
    }

    /// Returns the sequence that a packet belongs to; `None` if it is of an earlier one of that name.
    fn sequence_of<H: Host>(
        &mut self,
        settings: &QpSettings,
        name: StreamKey,
        incoming: &DcArrival<'_>,
        host: &mut H,
    ) -> Option<&mut InitiatorSequence> {
        let header = &incoming.header;
        let known = self.sequences.get(&name);
        let is_late = |sequence: &&InitiatorSequence| {
            sequence.epoch > header.epoch
                && incoming.now_ns.saturating_sub(sequence.last_received_ns) < LONGEST_LIFE_NS
        };
        if known.filter(is_late).is_some() {
            return None;
        }
        if known.map(|sequence| sequence.epoch) != Some(header.epoch) {
            self.forget(settings, &name, host);
            if self.sequences.len() >= MAX_SEQUENCES {
                let silent = self
                    .sequences
                    .iter()
                    .min_by_key(|(_, sequence)| sequence.last_received_ns)
                    .map(|(name, _)| *name);
                silent.into_iter().for_each(|silent| self.forget(settings, &silent, host));
            }
        }
        let new = || InitiatorSequence {
            epoch: header.epoch,
            next: header.floor.min(header.message),
            part: 0,
            current: None,
            values: BTreeMap::new(),
            refused: None,
            behind_sent: false,
            last_received_ns: 0,
        };
        let sequence = self.sequences.entry(name).or_insert_with(new);
        sequence.last_received_ns = incoming.now_ns;
        if sequence.values.first_key_value().is_some_and(|(first, _)| *first < header.floor) {
            sequence.values = sequence.values.split_off(&header.floor);
        }
        Some(sequence)
    }

    /// Removes a sequence that is over: a receive request that is partly filled completes.
    fn forget<H: Host>(&mut self, settings: &QpSettings, name: &StreamKey, host: &mut H) {
        let current = self.sequences.remove(name).and_then(|sequence| sequence.current);
        if let Some(receive) = current.and_then(|current| current.receive) {
            let flushed = WorkCompletion {
                wr_id: receive.wr_id,
                status: WcStatus::WrFlushErr,
                opcode: WcOpcode::Recv,
                qp_num: settings.context.qpn.value(),
                ..WorkCompletion::default()
            };
            host.complete_recv(&settings.context, receive.cq, flushed, false);
        }
    }

    /// Gives up all partly received messages.
    pub(super) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        while let Some(name) = self.sequences.first_key_value().map(|(name, _)| *name) {
            self.forget(settings, &name, host);
        }
        self.answers = DcAnswers::default();
    }
}

impl InitiatorSequence {
    fn take<H: Host>(
        &mut self,
        settings: &QpSettings,
        access_key: u64,
        incoming: &DcArrival<'_>,
        length: usize,
        host: &mut H,
    ) -> DcOutcome {
        let header = &incoming.header;
        if let Some((message, reason)) = self.refused.filter(|(message, _)| header.message >= *message) {
            // Messages after a refused one are not executed.
            return if header.message == message {
                DcOutcome::Refused(message, reason)
            } else {
                DcOutcome::Nothing
            };
        }
        if header.message < self.next {
            return self.again(settings, header, host);
        }
        if header.message > self.next || header.part > self.part {
            // This is reported once: packets that are outstanding by then are behind as well.
            return match core::mem::replace(&mut self.behind_sent, true) {
                true => DcOutcome::Nothing,
                false => DcOutcome::Behind,
            };
        }
        if header.part < self.part {
            return DcOutcome::Ack;
        }
        self.behind_sent = false;
        let done = if header.part == 0 { self.begin(settings, access_key, incoming, host) } else { Ok(()) };
        let done = done.and_then(|()| match header.kind {
            DcPacketKind::Read => Ok(DcOutcome::Data),
            DcPacketKind::CompareSwap | DcPacketKind::FetchAdd => self.atomic(settings, incoming, host),
            _ => self.store(settings, incoming, length, host),
        });
        match done {
            Ok(outcome) => {
                if header.kind.returns() {
                    self.advance();
                }
                outcome
            }
            Err(DcStopReason::NotReady) => DcOutcome::NotReady,
            Err(DcStopReason::Foreign) => DcOutcome::Nothing,
            Err(DcStopReason::Refused(reason)) => {
                self.current = None;
                self.refused = Some((header.message, reason));
                DcOutcome::Refused(header.message, reason)
            }
        }
    }

    /// Moves on to the next message, because this one has been executed.
    fn advance(&mut self) {
        (self.next, self.part, self.current) = (self.next + 1, 0, None);
    }

    /// Answers a repeated message that was executed already: its answer may have been lost.
    fn again<H: Host>(&mut self, settings: &QpSettings, header: &DcHeader, host: &mut H) -> DcOutcome {
        match header.kind {
            DcPacketKind::Read => match check_memory(settings, header, Access::REMOTE_READ, host) {
                Ok(()) => DcOutcome::Data,
                Err(reason) => DcOutcome::Refused(header.message, reason),
            },
            DcPacketKind::CompareSwap | DcPacketKind::FetchAdd => {
                self.values.get(&header.message).map_or(DcOutcome::Nothing, |value| DcOutcome::Value(*value))
            }
            _ => DcOutcome::Ack,
        }
    }

    /// Checks at the first part of a message whether it may be executed.
    fn begin<H: Host>(
        &mut self,
        settings: &QpSettings,
        access_key: u64,
        incoming: &DcArrival<'_>,
        host: &mut H,
    ) -> Result<(), DcStopReason> {
        let header = &incoming.header;
        if header.key != access_key {
            host.event(&settings.context, AsyncEventType::QpAccessErr);
            return Err(DcStopReason::Refused(DcReason::AccessKey));
        }
        let mut receive = None;
        match header.kind {
            DcPacketKind::Send | DcPacketKind::SendImm => {
                receive = Some(take_receive(settings, incoming, host)?)
            }
            DcPacketKind::Write | DcPacketKind::WriteImm => {
                check_memory(settings, header, Access::REMOTE_WRITE, host)?
            }
            DcPacketKind::Read => check_memory(settings, header, Access::REMOTE_READ, host)?,
            _ => check_memory(settings, header, Access::REMOTE_ATOMIC, host)?,
        }
        if header.kind == DcPacketKind::Read && host.counts() {
            host.ended(&settings.context, CountedOperation::RemoteRead, true);
        }
        let (kind, total, part_bytes) = (header.kind, header.total, header.part_bytes);
        self.current = Some(CurrentMessage { kind, total, part_bytes, receive });
        Ok(())
    }

    fn atomic<H: Host>(
        &mut self,
        settings: &QpSettings,
        incoming: &DcArrival<'_>,
        host: &mut H,
    ) -> Result<DcOutcome, DcStopReason> {
        let header = &incoming.header;
        let mut operands =
            incoming.data.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_be_bytes));
        let (first, second) = (operands.next().unwrap_or(0), operands.next().unwrap_or(0));
        let operation = match header.kind {
            DcPacketKind::CompareSwap => AtomicOperation::CompareSwap { compare: first, swap: second },
            _ => AtomicOperation::FetchAdd { add: first },
        };
        if !header.address.is_multiple_of(8) {
            return Err(DcStopReason::Refused(DcReason::Invalid));
        }
        let found = host.remote_atomic(key_of(settings, header), header.address, operation);
        let value = found.map_err(|_| DcStopReason::Refused(DcReason::Memory))?;
        if self.values.len() >= MAX_VALUES {
            self.values.pop_first();
        }
        self.values.insert(header.message, value);
        Ok(DcOutcome::Value(value))
    }

    /// Stores a part; the last one completes a receive request.
    fn store<H: Host>(
        &mut self,
        settings: &QpSettings,
        incoming: &DcArrival<'_>,
        length: usize,
        host: &mut H,
    ) -> Result<DcOutcome, DcStopReason> {
        let header = &incoming.header;
        let current = self.current.as_mut().ok_or(DcStopReason::Foreign)?;
        if (current.kind, current.total, current.part_bytes) != (header.kind, header.total, header.part_bytes)
        {
            return Err(DcStopReason::Foreign);
        }
        let is_last = self.part + 1 == header.parts();
        if let (true, Some(receive)) = (header.kind.is_send(), &current.receive) {
            if host.scatter(receive.pd, &receive.sges, header.offset(), incoming.data).is_err() {
                complete(settings, incoming, receive, WcStatus::LocProtErr, host);
                return Err(DcStopReason::Refused(DcReason::Operation));
            }
        } else if length > 0 {
            let address = header.address.wrapping_add(header.offset());
            let written = host.remote_write(key_of(settings, header), address, incoming.data);
            written.map_err(|_| DcStopReason::Refused(DcReason::Memory))?;
        }
        if is_last {
            if !header.kind.is_send() && host.counts() {
                host.ended(&settings.context, CountedOperation::RemoteWrite, true);
            }
            if header.kind == DcPacketKind::WriteImm {
                current.receive = Some(take_receive(settings, incoming, host)?);
            }
            if let Some(receive) = &current.receive {
                complete(settings, incoming, receive, WcStatus::Success, host);
            }
            self.advance();
        } else {
            self.part += 1;
        }
        Ok(DcOutcome::Ack)
    }
}

/// Reason why a part is not executed.
enum DcStopReason {
    /// No receive request is posted.
    NotReady,
    /// The part is not of the message whose parts are arriving.
    Foreign,
    Refused(DcReason),
}

impl From<DcReason> for DcStopReason {
    fn from(reason: DcReason) -> DcStopReason {
        DcStopReason::Refused(reason)
    }
}

/// Returns the length in bytes of a packet's part, if the packet is well formed.
fn well_formed(settings: &QpSettings, incoming: &DcArrival<'_>) -> Option<usize> {
    let DcArrival { header, data, .. } = incoming;
    // After the last number there is no next one.
    if header.message == u64::MAX {
        return None;
    }
    if u64::from(header.total) > MAX_MESSAGE_BYTES || header.part_bytes < MIN_PART_BYTES {
        return None;
    }
    let length = header.length()?;
    let carried = match header.kind {
        kind if kind.is_atomic() => OPERAND_BYTES,
        kind if kind.carries_parts() => length,
        _ => 0,
    };
    let fits = header.kind != DcPacketKind::Read || length + HEADER_BYTES <= settings.mtu_bytes;
    (data.len() == carried && fits).then_some(length)
}

fn key_of(settings: &QpSettings, header: &DcHeader) -> RemoteKey {
    RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn }
}

/// Checks that the whole range that a message names may be accessed.
fn check_memory<H: Host>(
    settings: &QpSettings,
    header: &DcHeader,
    access: Access,
    host: &mut H,
) -> Result<(), DcReason> {
    if !settings.access.contains(access) {
        return Err(DcReason::Invalid);
    }
    if header.total == 0 {
        return Ok(());
    }
    let checked = host.check_remote(key_of(settings, header), header.address, header.total.into(), access);
    checked.map_err(|_| DcReason::Memory)
}

/// Takes the receive request of a message.
fn take_receive<H: Host>(
    settings: &QpSettings,
    incoming: &DcArrival<'_>,
    host: &mut H,
) -> Result<RecvWqe, DcStopReason> {
    let mut receive = RecvWqe::default();
    host.take_recv(&settings.context, None, &mut receive).map_err(|_| DcStopReason::NotReady)?;
    if incoming.header.kind.is_send() && u64::from(incoming.header.total) > receive.length_bytes {
        complete(settings, incoming, &receive, WcStatus::LocLenErr, host);
        return Err(DcStopReason::Refused(DcReason::Invalid));
    }
    Ok(receive)
}

fn complete<H: Host>(
    settings: &QpSettings,
    incoming: &DcArrival<'_>,
    receive: &RecvWqe,
    status: WcStatus,
    host: &mut H,
) {
    let header = &incoming.header;
    let mut completion = WorkCompletion {
        wr_id: receive.wr_id,
        status,
        opcode: if header.kind.is_send() { WcOpcode::Recv } else { WcOpcode::RecvRdmaWithImm },
        byte_len: header.total,
        qp_num: settings.context.qpn.value(),
        src_qp: incoming.from.1.value(),
        ..WorkCompletion::default()
    };
    if header.kind.has_imm() {
        completion.flags |= WcFlags::WITH_IMM;
        completion.imm_data = header.imm;
    }
    host.complete_recv(&settings.context, receive.cq, completion, header.solicited);
}

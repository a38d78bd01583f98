//! The side that receives messages (DCT): carries those of each stream of each initiator out in the order of
//! their numbers, each once.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::IpAddr;

use super::answers::{Answer, Answers};
use super::header::{HEADER_BYTES, Header, Kind, OPERAND_BYTES, Reason};
use crate::host::{Host, RecvWqe, RemoteKey, Transmit};
use crate::path::{Arrival, Flow, Path};
use crate::qp::outbound::Progress;
use crate::qp::settings::Settings;
use crate::types::{
    Access, AsyncEventType, AtomicOperation, MAX_MESSAGE_BYTES, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};
use crate::wire::{Psn, Qpn};

/// Ways that are remembered; the one that was silent longest makes room.
const MOST_WAYS: usize = 4096;
/// Values of atomics that are remembered of one way: more than may be under way there.
const MOST_VALUES: usize = 256;
/// No packet is under way for so long: one that seems to be of an earlier way then is of a host that has
/// begun to count time anew.
const LONGEST_LIFE_NS: u64 = 60_000_000_000;
/// Least bytes of a part: a message has few enough of them.
const LEAST_PART_BYTES: u16 = 64;

/// A packet that came.
pub(super) struct Came<'a> {
    pub(super) from: (IpAddr, Qpn),
    pub(super) arrival: &'a Arrival<'a>,
    pub(super) header: Header,
    pub(super) data: &'a [u8],
    pub(super) now_ns: u64,
}

/// The message whose parts are coming.
#[derive(Debug)]
struct Current {
    kind: Kind,
    total: u32,
    part_bytes: u16,
    /// Of a SEND: where it goes.
    receive: Option<RecvWqe>,
}

/// A stream of an initiator.
#[derive(Debug)]
struct Way {
    epoch: u64,
    /// Messages below have been carried out.
    next: u64,
    /// Parts of the next one that have been.
    part: u32,
    current: Option<Current>,
    /// What atomics found whose answers may have been lost.
    values: BTreeMap<u64, u64>,
    refused: Option<(u64, Reason)>,
    /// That a part is missing has been said.
    said_behind: bool,
    heard_ns: u64,
}

/// A stream of an initiator, as packets name it.
type Name = (IpAddr, Qpn, u16);

/// A target.
#[derive(Debug)]
pub(in crate::qp) struct Target {
    access_key: u64,
    ways: BTreeMap<Name, Way>,
    answers: Answers,
    next_psn: Psn,
}

/// What to say to a packet.
enum Outcome {
    /// How far the way is.
    Ack,
    /// The same, and that the next part is missing.
    Behind,
    NotReady,
    /// The memory that a READ asks for.
    Data,
    Value(u64),
    Refused(u64, Reason),
    Nothing,
}

impl Target {
    pub(super) fn new(access_key: u64) -> Target {
        Target { access_key, ways: BTreeMap::new(), answers: Answers::default(), next_psn: Psn::new(0) }
    }

    pub(super) const fn access_key(&self) -> u64 {
        self.access_key
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        self.answers.transmit(settings, &mut self.next_psn, host, sink)
    }

    /// A part of a message came, or a question for a part of memory.
    pub(super) fn handle<H: Host>(&mut self, settings: &Settings, came: &Came<'_>, host: &mut H) {
        let Some(length) = well_formed(settings, came) else { return };
        let name = (came.from.0, came.from.1, came.header.stream);
        let access_key = self.access_key;
        let Some(way) = self.meet(settings, name, came, host) else { return };
        let outcome = way.take(settings, access_key, came, length, host);
        let (message, part) = (way.next, way.part);
        let header = came.header;
        let said = match outcome {
            Outcome::Ack => Header { kind: Kind::Ack, message, part, ..header },
            Outcome::Behind => Header { kind: Kind::Behind, message, part, ..header },
            Outcome::NotReady => {
                Header { kind: Kind::NotReady, message, part, rnr_timer: settings.min_rnr_timer, ..header }
            }
            Outcome::Data => Header { kind: Kind::Data, ..header },
            Outcome::Value(_) => Header { kind: Kind::Value, ..header },
            Outcome::Refused(message, reason) => {
                Header { kind: Kind::Refused, reason: reason as u8, message, part: 0, ..header }
            }
            Outcome::Nothing => return,
        };
        let value = if let Outcome::Value(value) = outcome { value } else { 0 };
        let Flow { source, destination, source_port, destination_port } = *came.arrival.flow;
        let flow = Flow { source: destination, destination: source, source_port, destination_port };
        let path = Arc::new(Path { flow, traffic_class: 0, hop_limit: u8::MAX, flow_label: 0 });
        self.answers.push(Answer { path, to: came.from.1, header: said, value });
    }

    /// The way that a packet belongs to. `None`: it is of an earlier one of that name.
    fn meet<H: Host>(
        &mut self,
        settings: &Settings,
        name: Name,
        came: &Came<'_>,
        host: &mut H,
    ) -> Option<&mut Way> {
        let header = &came.header;
        let known = self.ways.get(&name);
        let is_late = |way: &&Way| {
            way.epoch > header.epoch && came.now_ns.saturating_sub(way.heard_ns) < LONGEST_LIFE_NS
        };
        if known.filter(is_late).is_some() {
            return None;
        }
        if known.map(|way| way.epoch) != Some(header.epoch) {
            self.forget(settings, &name, host);
            if self.ways.len() >= MOST_WAYS {
                let silent = self.ways.iter().min_by_key(|(_, way)| way.heard_ns).map(|(name, _)| *name);
                silent.into_iter().for_each(|silent| self.forget(settings, &silent, host));
            }
        }
        let new = || Way {
            epoch: header.epoch,
            next: header.floor.min(header.message),
            part: 0,
            current: None,
            values: BTreeMap::new(),
            refused: None,
            said_behind: false,
            heard_ns: 0,
        };
        let way = self.ways.entry(name).or_insert_with(new);
        way.heard_ns = came.now_ns;
        if way.values.first_key_value().is_some_and(|(first, _)| *first < header.floor) {
            way.values = way.values.split_off(&header.floor);
        }
        Some(way)
    }

    /// A way is over: a receive request that a message has half filled ends.
    fn forget<H: Host>(&mut self, settings: &Settings, name: &Name, host: &mut H) {
        let current = self.ways.remove(name).and_then(|way| way.current);
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

    /// Everything that has half arrived is given up.
    pub(super) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        while let Some(name) = self.ways.first_key_value().map(|(name, _)| *name) {
            self.forget(settings, &name, host);
        }
        self.answers = Answers::default();
    }
}

impl Way {
    fn take<H: Host>(
        &mut self,
        settings: &Settings,
        access_key: u64,
        came: &Came<'_>,
        length: usize,
        host: &mut H,
    ) -> Outcome {
        let header = &came.header;
        if let Some((message, reason)) = self.refused.filter(|(message, _)| header.message >= *message) {
            // What follows on a message that was refused is not carried out.
            return if header.message == message {
                Outcome::Refused(message, reason)
            } else {
                Outcome::Nothing
            };
        }
        if header.message < self.next {
            return self.again(settings, header, host);
        }
        if header.message > self.next || header.part > self.part {
            // Said once: what is under way by then is behind as well.
            return match core::mem::replace(&mut self.said_behind, true) {
                true => Outcome::Nothing,
                false => Outcome::Behind,
            };
        }
        if header.part < self.part {
            return Outcome::Ack;
        }
        self.said_behind = false;
        let done = if header.part == 0 { self.begin(settings, access_key, came, host) } else { Ok(()) };
        let done = done.and_then(|()| match header.kind {
            Kind::Read => Ok(Outcome::Data),
            Kind::CompareSwap | Kind::FetchAdd => self.atomic(settings, came, host),
            _ => self.store(settings, came, length, host),
        });
        match done {
            Ok(outcome) => {
                if header.kind.returns() {
                    self.advance();
                }
                outcome
            }
            Err(Stop::NotReady) => Outcome::NotReady,
            Err(Stop::Foreign) => Outcome::Nothing,
            Err(Stop::Refused(reason)) => {
                self.current = None;
                self.refused = Some((header.message, reason));
                Outcome::Refused(header.message, reason)
            }
        }
    }

    /// The next message has been carried out.
    fn advance(&mut self) {
        (self.next, self.part, self.current) = (self.next + 1, 0, None);
    }

    /// A message that was carried out comes again: its answer may have been lost.
    fn again<H: Host>(&mut self, settings: &Settings, header: &Header, host: &mut H) -> Outcome {
        match header.kind {
            Kind::Read => match check_memory(settings, header, Access::REMOTE_READ, host) {
                Ok(()) => Outcome::Data,
                Err(reason) => Outcome::Refused(header.message, reason),
            },
            Kind::CompareSwap | Kind::FetchAdd => {
                self.values.get(&header.message).map_or(Outcome::Nothing, |value| Outcome::Value(*value))
            }
            _ => Outcome::Ack,
        }
    }

    /// The first part of a message: whether it may be carried out.
    fn begin<H: Host>(
        &mut self,
        settings: &Settings,
        access_key: u64,
        came: &Came<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        let header = &came.header;
        if header.key != access_key {
            host.event(&settings.context, AsyncEventType::QpAccessErr);
            return Err(Stop::Refused(Reason::AccessKey));
        }
        let mut receive = None;
        match header.kind {
            Kind::Send | Kind::SendImm => receive = Some(take_receive(settings, came, host)?),
            Kind::Write | Kind::WriteImm => check_memory(settings, header, Access::REMOTE_WRITE, host)?,
            Kind::Read => check_memory(settings, header, Access::REMOTE_READ, host)?,
            _ => check_memory(settings, header, Access::REMOTE_ATOMIC, host)?,
        }
        let (kind, total, part_bytes) = (header.kind, header.total, header.part_bytes);
        self.current = Some(Current { kind, total, part_bytes, receive });
        Ok(())
    }

    fn atomic<H: Host>(
        &mut self,
        settings: &Settings,
        came: &Came<'_>,
        host: &mut H,
    ) -> Result<Outcome, Stop> {
        let header = &came.header;
        let mut operands =
            came.data.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_be_bytes));
        let (first, second) = (operands.next().unwrap_or(0), operands.next().unwrap_or(0));
        let operation = match header.kind {
            Kind::CompareSwap => AtomicOperation::CompareSwap { compare: first, swap: second },
            _ => AtomicOperation::FetchAdd { add: first },
        };
        if !header.address.is_multiple_of(8) {
            return Err(Stop::Refused(Reason::Invalid));
        }
        let found = host.remote_atomic(key_of(settings, header), header.address, operation);
        let value = found.map_err(|_| Stop::Refused(Reason::Memory))?;
        if self.values.len() >= MOST_VALUES {
            self.values.pop_first();
        }
        self.values.insert(header.message, value);
        Ok(Outcome::Value(value))
    }

    /// A part goes where it belongs, and the last one completes a receive request.
    fn store<H: Host>(
        &mut self,
        settings: &Settings,
        came: &Came<'_>,
        length: usize,
        host: &mut H,
    ) -> Result<Outcome, Stop> {
        let header = &came.header;
        let current = self.current.as_mut().ok_or(Stop::Foreign)?;
        if (current.kind, current.total, current.part_bytes) != (header.kind, header.total, header.part_bytes)
        {
            return Err(Stop::Foreign);
        }
        let is_last = self.part + 1 == header.parts();
        if let (true, Some(receive)) = (header.kind.is_send(), &current.receive) {
            if host.scatter(receive.pd, &receive.sges, header.offset(), came.data).is_err() {
                complete(settings, came, receive, WcStatus::LocProtErr, host);
                return Err(Stop::Refused(Reason::Operation));
            }
        } else if length > 0 {
            let address = header.address.wrapping_add(header.offset());
            let written = host.remote_write(key_of(settings, header), address, came.data);
            written.map_err(|_| Stop::Refused(Reason::Memory))?;
        }
        if is_last {
            if header.kind == Kind::WriteImm {
                current.receive = Some(take_receive(settings, came, host)?);
            }
            if let Some(receive) = &current.receive {
                complete(settings, came, receive, WcStatus::Success, host);
            }
            self.advance();
        } else {
            self.part += 1;
        }
        Ok(Outcome::Ack)
    }
}

/// Why a part is not carried out.
enum Stop {
    /// No receive request is posted.
    NotReady,
    /// It is not of the message whose parts are coming.
    Foreign,
    Refused(Reason),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Stop {
        Stop::Refused(reason)
    }
}

/// The bytes of a packet's part, if the packet is as one must be.
fn well_formed(settings: &Settings, came: &Came<'_>) -> Option<usize> {
    let Came { header, data, .. } = came;
    // Behind the last number there is none to go on with.
    if header.message == u64::MAX {
        return None;
    }
    if u64::from(header.total) > MAX_MESSAGE_BYTES || header.part_bytes < LEAST_PART_BYTES {
        return None;
    }
    let length = header.length()?;
    let carried = match header.kind {
        kind if kind.is_atomic() => OPERAND_BYTES,
        kind if kind.carries_parts() => length,
        _ => 0,
    };
    let fits = header.kind != Kind::Read || length + HEADER_BYTES <= settings.mtu_bytes;
    (data.len() == carried && fits).then_some(length)
}

fn key_of(settings: &Settings, header: &Header) -> RemoteKey {
    RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn }
}

/// Whether the whole range that a message names may be used so.
fn check_memory<H: Host>(
    settings: &Settings,
    header: &Header,
    access: Access,
    host: &mut H,
) -> Result<(), Reason> {
    if !settings.access.contains(access) {
        return Err(Reason::Invalid);
    }
    if header.total == 0 {
        return Ok(());
    }
    let checked = host.check_remote(key_of(settings, header), header.address, header.total.into(), access);
    checked.map_err(|_| Reason::Memory)
}

/// A message takes its receive request.
fn take_receive<H: Host>(settings: &Settings, came: &Came<'_>, host: &mut H) -> Result<RecvWqe, Stop> {
    let mut receive = RecvWqe::default();
    host.take_recv(&settings.context, None, &mut receive).map_err(|_| Stop::NotReady)?;
    if came.header.kind.is_send() && u64::from(came.header.total) > receive.length_bytes {
        complete(settings, came, &receive, WcStatus::LocLenErr, host);
        return Err(Stop::Refused(Reason::Invalid));
    }
    Ok(receive)
}

fn complete<H: Host>(
    settings: &Settings,
    came: &Came<'_>,
    receive: &RecvWqe,
    status: WcStatus,
    host: &mut H,
) {
    let header = &came.header;
    let mut completion = WorkCompletion {
        wr_id: receive.wr_id,
        status,
        opcode: if header.kind.is_send() { WcOpcode::Recv } else { WcOpcode::RecvRdmaWithImm },
        byte_len: header.total,
        qp_num: settings.context.qpn.value(),
        src_qp: came.from.1.value(),
        ..WorkCompletion::default()
    };
    if header.kind.has_imm() {
        completion.flags |= WcFlags::WITH_IMM;
        completion.imm_data = header.imm;
    }
    host.complete_recv(&settings.context, receive.cq, completion, header.solicited);
}

//! The side that sends messages: an entry for each posted request, and parts that are sent until they are
//! answered.

use alloc::collections::{BTreeMap, TryReserveError, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::header::{
    HEADER_BYTES, MAX_RDMA_BYTES, MAX_SEND_BYTES, SrdHeader, SrdPacketKind, SrdReason, parts_of,
};
use super::packet::{PacketDestination, RocePaths, send_packet};
use super::window::{PartSet, SPAN, WINDOW_PARTS};
use crate::event::PacketSide;
use crate::host::{Host, MemoryError, Transmit, count_ended};
use crate::path::Path;
use crate::qp::outbound::{EmitOutcome, Progress};
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::QpSettings;
use crate::types::{SendOpcode, SendRequest, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::{Psn, Qpn};

/// Largest number of outstanding messages.
const MAX_ACTIVE: usize = 64;
/// Largest number of outstanding parts of all messages.
const MAX_PARTS: u32 = 256;
/// Largest number of peers without outstanding messages whose next message number is remembered.
const MAX_PEERS: usize = 4096;
/// Timeout before the first repetition, in nanoseconds; it doubles each time, up to the longest.
const FIRST_WAIT_NS: u64 = 8_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// Number of repetitions without any answer after which a message is given up: some ten seconds.
const MAX_REPETITIONS: u32 = 16;
/// Delay after the peer had no receive request, in nanoseconds.
const NOT_READY_WAIT_NS: u64 = 1_000_000;
/// Value of `rnr_retry` that stands for ever.
const FOR_EVER: u8 = 7;
/// Longest time that a message is held back so that others overtake it, in nanoseconds.
const HOLD_NS: u64 = 100_000;

/// Order in which messages leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SrdOrder {
    /// An order that the seed determines: each message is held back for a short time, and may be overtaken.
    Seed(u64),
    /// The order of posting.
    InOrder,
    /// The newest first, among messages that were posted within a short time.
    Reverse,
}

/// A request that waits for its turn.
#[derive(Debug)]
struct SrdQueuedRequest {
    wqe: SendWqe,
    /// Status of a request that cannot be executed.
    fault: Option<WcStatus>,
    /// Time from which it may leave; `None` before it was first considered.
    from_ns: Option<u64>,
    /// True if the oldest message to its peer has to end first: it is not considered again until some message
    /// has ended.
    is_beyond_span: bool,
}

/// The repetition of a message that has not arrived.
#[derive(Debug)]
struct SrdRepetition {
    /// Time at which parts are sent again.
    deadline_ns: u64,
    /// Time before which no part is sent; 0 for no such time.
    held_until_ns: u64,
    repetitions: u32,
    not_ready_left: u8,
}

/// An outstanding message.
#[derive(Debug)]
struct SrdActiveMessage {
    wqe: SendWqe,
    path: Arc<Path>,
    kind: SrdPacketKind,
    peer: (IpAddr, Qpn),
    epoch: u64,
    number: u64,
    part_bytes: u16,
    count: u32,
    parts: PartSet,
    /// Bits of the parts sent since the last repetition, from the first missing part on.
    sent: u64,
    /// True if all parts have arrived, and the peer has to say again how the message ended.
    asks: bool,
    repetition: SrdRepetition,
}

/// A queue pair that messages are sent to.
#[derive(Debug)]
struct ReceivingPeer {
    epoch: u64,
    next: u64,
}

#[derive(Debug)]
pub(super) struct SrdSender {
    capacity: usize,
    order: SrdOrder,
    /// State of the random number generator.
    chance: u64,
    waiting: VecDeque<SrdQueuedRequest>,
    active: Vec<SrdActiveMessage>,
    peers: BTreeMap<(IpAddr, Qpn), ReceivingPeer>,
    paths: RocePaths,
}

impl SrdSender {
    pub(super) fn new(capacity: u32, order: SrdOrder) -> SrdSender {
        let chance = if let SrdOrder::Seed(seed) = order { seed } else { 0 };
        SrdSender {
            capacity: capacity as usize,
            order,
            chance,
            waiting: VecDeque::new(),
            active: Vec::new(),
            peers: BTreeMap::new(),
            paths: RocePaths::default(),
        }
    }

    pub(super) fn order(&self) -> SrdOrder {
        self.order
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= self.capacity
    }

    /// Counts the requests that have not ended.
    pub(super) fn count(&self) -> usize {
        self.waiting.len() + self.active.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn post(
        &mut self,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
    ) -> Result<(), TryReserveError> {
        self.waiting.try_reserve(1)?;
        let wqe = SendWqe::of(request, true, length_bytes)?;
        let fault = fault.or_else(|| (!fits(&wqe)).then_some(WcStatus::LocLenErr));
        self.waiting.push_back(SrdQueuedRequest { wqe, fault, from_ns: None, is_beyond_span: false });
        Ok(())
    }

    /// Returns the next number of the sequence that the seed determines (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.chance;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }

    pub(super) fn wants_to_send(&self) -> bool {
        self.may_begin().next().is_some() || self.active.iter().any(SrdActiveMessage::has_unsent)
    }

    /// Returns the requests that are started next.
    fn may_begin(&self) -> impl Iterator<Item = &SrdQueuedRequest> {
        let has_room = self.active.len() < MAX_ACTIVE;
        let first = self.waiting.iter().take(if has_room { MAX_ACTIVE } else { 0 });
        first.filter(|waiting| !waiting.is_beyond_span)
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let active = self.active.iter().map(|active| match active.repetition.held_until_ns {
            0 => active.repetition.deadline_ns,
            held_until_ns => held_until_ns,
        });
        active.chain(self.may_begin().filter_map(|waiting| waiting.from_ns)).min()
    }

    /// Starts the messages that have waited long enough, in the order that was asked for.
    fn activate<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
        for index in 0..self.waiting.len().min(MAX_ACTIVE) {
            if self.waiting.get(index).is_some_and(|waiting| waiting.from_ns.is_none()) {
                let held_ns = match self.order {
                    SrdOrder::InOrder => 0,
                    SrdOrder::Reverse => HOLD_NS,
                    SrdOrder::Seed(_) => self.draw() % HOLD_NS,
                };
                if let Some(waiting) = self.waiting.get_mut(index) {
                    waiting.from_ns = Some(now_ns.saturating_add(held_ns));
                }
            }
        }
        while self.active.len() < MAX_ACTIVE {
            let ready = self.waiting.iter().take(MAX_ACTIVE).enumerate();
            let ready = ready.filter(|(_, waiting)| {
                !waiting.is_beyond_span && waiting.from_ns.is_some_and(|from_ns| from_ns <= now_ns)
            });
            let index = match self.order {
                SrdOrder::InOrder => ready.map(|(index, _)| index).next(),
                SrdOrder::Reverse => ready.map(|(index, _)| index).next_back(),
                SrdOrder::Seed(_) => ready.min_by_key(|(_, waiting)| waiting.from_ns).map(|(index, _)| index),
            };
            let Some(index) = index else { return };
            let is_beyond_span = self.waiting.get(index).is_some_and(|waiting| self.is_beyond_span(waiting));
            if let (true, Some(waiting)) = (is_beyond_span, self.waiting.get_mut(index)) {
                waiting.is_beyond_span = true;
            } else if let Some(waiting) = self.waiting.remove(index) {
                self.begin(settings, waiting, now_ns, host);
            }
        }
    }

    /// Reports whether the oldest message to its peer has to end first.
    fn is_beyond_span(&self, waiting: &SrdQueuedRequest) -> bool {
        let Some(to) = peer_of(&waiting.wqe) else { return false };
        self.peers.get(&to).is_some_and(|peer| peer.next - self.floor(to, peer.next) >= SPAN)
    }

    /// Returns the number of the oldest message to a peer that has not ended.
    fn floor(&self, to: (IpAddr, Qpn), next: u64) -> u64 {
        let under_way = self.active.iter().filter(|active| active.peer == to);
        under_way.map(|active| active.number).min().unwrap_or(next)
    }

    fn begin<H: Host>(
        &mut self,
        settings: &QpSettings,
        waiting: SrdQueuedRequest,
        now_ns: u64,
        host: &mut H,
    ) {
        let SrdQueuedRequest { wqe, fault, .. } = waiting;
        let kind = kind_of(wqe.opcode);
        let path = wqe.ud().map(|ud| self.paths.of(&ud.path));
        let (None, Some(kind), Some(to), Some(path)) = (fault, kind, peer_of(&wqe), path) else {
            let status = fault.unwrap_or(WcStatus::LocQpOpErr);
            let reason = if status == WcStatus::LocLenErr { SrdReason::Length as u32 } else { 3 };
            return complete(settings, &wqe, status, reason, host);
        };
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&to) {
            let active = &self.active;
            self.peers.retain(|peer, _| active.iter().any(|active| active.peer == *peer));
        }
        let peer = self.peers.entry(to).or_insert(ReceivingPeer { epoch: now_ns, next: 0 });
        let (number, epoch) = (peer.next, peer.epoch);
        peer.next += 1;
        let room = settings.mtu_bytes.saturating_sub(HEADER_BYTES) & !3;
        let part_bytes = u16::try_from(room).unwrap_or(u16::MAX - 3);
        let count = parts_of(wqe.span.length_bytes, part_bytes);
        let parts = PartSet::default();
        self.active.push(SrdActiveMessage {
            wqe,
            path,
            kind,
            peer: to,
            epoch,
            number,
            part_bytes,
            count,
            parts,
            sent: 0,
            asks: false,
            repetition: SrdRepetition {
                deadline_ns: now_ns.saturating_add(FIRST_WAIT_NS),
                held_until_ns: 0,
                repetitions: 0,
                not_ready_left: settings.rnr_retry,
            },
        });
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        draining: bool,
        now_ns: u64,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        if !draining {
            self.activate(settings, now_ns, host);
        }
        let mut under_way: u32 = self.active.iter().map(|active| active.sent.count_ones()).sum();
        let mut index = 0;
        while index < self.active.len() {
            let Some(to) = self.active.get(index).map(|active| active.peer) else { break };
            let floor = self.floor(to, u64::MAX);
            let Some(active) = self.active.get_mut(index) else { break };
            match active.transmit(settings, (floor, now_ns), &mut under_way, next_psn, host, sink) {
                Ok(Progress::Idle) => index += 1,
                Ok(Progress::Blocked) => return Progress::Blocked,
                Err(_) => self.end(index, settings, SrdReason::LocalKey, host),
            }
        }
        Progress::Idle
    }

    /// Ends a message.
    fn end<H: Host>(&mut self, index: usize, settings: &QpSettings, reason: SrdReason, host: &mut H) {
        if index < self.active.len() {
            let active = self.active.remove(index);
            self.waiting.iter_mut().take(MAX_ACTIVE).for_each(|waiting| waiting.is_beyond_span = false);
            complete(settings, &active.wqe, reason.status(), reason as u32, host);
        }
    }

    /// Handles an answer.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &QpSettings,
        from: (IpAddr, Qpn),
        header: &SrdHeader,
        data: &[u8],
        now_ns: u64,
        host: &mut H,
    ) {
        let is_it = |active: &SrdActiveMessage| {
            (active.peer, active.number, active.epoch) == (from, header.message, header.epoch)
        };
        let Some(index) = self.active.iter().position(is_it) else { return };
        let Some(active) = self.active.get_mut(index) else { return };
        let ended = match header.kind {
            SrdPacketKind::Data if active.kind == SrdPacketKind::Read => {
                active.store(settings, header, data, now_ns, host)
            }
            SrdPacketKind::Progress if active.kind != SrdPacketKind::Read => {
                active.handle_progress(header, now_ns);
                None
            }
            SrdPacketKind::NotReady if active.kind.takes_receive() => {
                active.handle_progress(header, now_ns);
                active.wait_for_receive(now_ns);
                None
            }
            // A READ that succeeds ends with its last data.
            SrdPacketKind::Done if header.reason != 0 || active.kind != SrdPacketKind::Read => {
                Some(SrdReason::of(header.reason))
            }
            _ => None,
        };
        if let Some(reason) = ended {
            self.end(index, settings, reason, host);
        }
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
        let mut index = 0;
        while let Some(active) = self.active.get_mut(index) {
            if active.repetition.held_until_ns == 0 && active.repetition.deadline_ns <= now_ns {
                // A timeout in which there was no room to send anything does not count.
                active.repetition.repetitions += u32::from(active.sent != 0 || active.is_there());
                if active.repetition.repetitions > MAX_REPETITIONS {
                    let reason = active.given_up();
                    self.end(index, settings, reason, host);
                    continue;
                }
                active.repeat(now_ns);
            }
            index += 1;
        }
    }

    pub(super) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        let active = core::mem::take(&mut self.active).into_iter().map(|active| active.wqe);
        let waiting = core::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.wqe);
        for wqe in active.chain(waiting) {
            complete(settings, &wqe, WcStatus::WrFlushErr, SrdReason::Flushed as u32, host);
        }
    }
}

impl SrdActiveMessage {
    /// Reports whether all parts have arrived.
    fn is_there(&self) -> bool {
        self.parts.first_missing >= self.count
    }

    /// Reports whether some part, or a question how the message ended, waits to be sent.
    fn has_unsent(&self) -> bool {
        if self.is_there() {
            return self.asks;
        }
        let ahead = (self.count - self.parts.first_missing).min(WINDOW_PARTS);
        let window = if ahead == WINDOW_PARTS { u64::MAX } else { (1 << ahead) - 1 };
        window & !self.parts.beyond & !self.sent != 0
    }

    fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        (floor, now_ns): (u64, u64),
        under_way: &mut u32,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, MemoryError> {
        if self.repetition.held_until_ns > now_ns {
            return Ok(Progress::Idle);
        }
        self.repetition.held_until_ns = 0;
        if self.is_there() {
            if core::mem::take(&mut self.asks) {
                let emitted = self.send_part(settings, self.count - 1, floor, next_psn, host, sink)?;
                self.asks = emitted == EmitOutcome::NoRoom;
                return Ok(if self.asks { Progress::Blocked } else { Progress::Idle });
            }
            return Ok(Progress::Idle);
        }
        for ahead in 0..WINDOW_PARTS {
            let part = self.parts.first_missing + ahead;
            if part >= self.count || *under_way >= MAX_PARTS {
                break;
            }
            if self.sent >> ahead & 1 != 0 || !self.parts.awaits(part) {
                continue;
            }
            if self.send_part(settings, part, floor, next_psn, host, sink)? == EmitOutcome::NoRoom {
                return Ok(Progress::Blocked);
            }
            self.sent |= 1 << ahead;
            *under_way += 1;
            self.repetition.deadline_ns = now_ns.saturating_add(self.wait_ns());
        }
        Ok(Progress::Idle)
    }

    fn send_part<H: Host, T: Transmit>(
        &self,
        settings: &QpSettings,
        part: u32,
        floor: u64,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Result<EmitOutcome, MemoryError> {
        let Some(ud) = self.wqe.ud() else { return Ok(EmitOutcome::Packet) };
        let is_last_try = self.kind.takes_receive() && self.repetition.not_ready_left == 0;
        let header = SrdHeader {
            kind: self.kind,
            reason: if is_last_try { SrdReason::NotReady as u8 } else { 0 },
            part_bytes: self.part_bytes,
            qkey: settings.qkey,
            epoch: self.epoch,
            message: self.number,
            floor,
            part,
            total: self.wqe.span.length_bytes,
            address: self.wqe.remote.address,
            rkey: self.wqe.remote.rkey,
            imm: self.wqe.imm_data,
        };
        let data_bytes = if self.kind.carries_data() { header.length().unwrap_or(0) } else { 0 };
        let (side, message, transmission) =
            (PacketSide::Requester, self.number, self.repetition.repetitions + 1);
        let to =
            PacketDestination { path: &self.path, qpn: ud.qpn, qkey: ud.qkey, side, message, transmission };
        send_packet(settings, &to, (&header.bytes(), data_bytes), next_psn, host, sink, |data, host| {
            if self.wqe.is_inline() {
                let start = header.offset() as usize;
                if let Some(inline) = self.wqe.inline_data().get(start..start + data.len()) {
                    data.copy_from_slice(inline);
                }
                return Ok(());
            }
            host.gather(settings.context.pd, self.wqe.sges(), header.offset(), data)
        })
    }

    /// Returns the reason with which a message ends whose peer has been silent for too long. A peer at a
    /// loopback address is on this host, whose adapter would answer that it has no such queue pair.
    fn given_up(&self) -> SrdReason {
        if self.peer.0.is_loopback() { SrdReason::NoQueuePair } else { SrdReason::Unresponsive }
    }

    fn wait_ns(&self) -> u64 {
        FIRST_WAIT_NS.saturating_mul(1 << self.repetition.repetitions.min(16)).min(LONGEST_WAIT_NS)
    }

    /// Handles the peer's report of the parts that it has.
    fn handle_progress(&mut self, header: &SrdHeader, now_ns: u64) {
        let said = PartSet { first_missing: header.part, beyond: header.floor };
        self.change(now_ns, |parts, count| parts.merge(said, count));
    }

    /// Changes the record of parts that have arrived; postpones the deadline if that is news.
    fn change(&mut self, now_ns: u64, change: impl FnOnce(&mut PartSet, u32) -> bool) {
        let before = self.parts.first_missing;
        if change(&mut self.parts, self.count) {
            self.sent = self.sent.checked_shr(self.parts.first_missing - before).unwrap_or(0);
            self.repetition.repetitions = 0;
            self.repetition.deadline_ns = now_ns.saturating_add(FIRST_WAIT_NS);
        }
    }

    /// Sends the missing parts again.
    fn repeat(&mut self, now_ns: u64) {
        self.sent = 0;
        self.asks = self.is_there();
        self.repetition.deadline_ns = now_ns.saturating_add(self.wait_ns());
    }

    /// Handles a peer without a receive request. The peer answers the last try with the end of the message.
    fn wait_for_receive(&mut self, now_ns: u64) {
        if self.repetition.held_until_ns > now_ns || self.repetition.not_ready_left == 0 {
            // This answer belongs to an earlier repetition.
            return;
        }
        if self.repetition.not_ready_left < FOR_EVER {
            self.repetition.not_ready_left -= 1;
        }
        self.repetition.repetitions = 0;
        self.repeat(now_ns);
        self.repetition.held_until_ns = now_ns.saturating_add(NOT_READY_WAIT_NS);
    }

    /// Stores data of a READ.
    fn store<H: Host>(
        &mut self,
        settings: &QpSettings,
        header: &SrdHeader,
        data: &[u8],
        now_ns: u64,
        host: &mut H,
    ) -> Option<SrdReason> {
        let own = (self.wqe.span.length_bytes, self.part_bytes);
        if (header.total, header.part_bytes) != own || header.length() != Some(data.len()) {
            return None;
        }
        let part = header.part;
        if self.parts.awaits(part) {
            if host.scatter(settings.context.pd, self.wqe.sges(), header.offset(), data).is_err() {
                return Some(SrdReason::LocalKey);
            }
            self.change(now_ns, |parts, _| {
                parts.add(part);
                true
            });
        }
        self.is_there().then_some(SrdReason::None)
    }
}

fn fits(wqe: &SendWqe) -> bool {
    let most = match wqe.opcode {
        SendOpcode::Send | SendOpcode::SendWithImm => MAX_SEND_BYTES,
        _ => MAX_RDMA_BYTES,
    };
    wqe.span.length_bytes <= most
}

fn kind_of(opcode: SendOpcode) -> Option<SrdPacketKind> {
    Some(match opcode {
        SendOpcode::Send => SrdPacketKind::Send,
        SendOpcode::SendWithImm => SrdPacketKind::SendImm,
        SendOpcode::RdmaWrite => SrdPacketKind::Write,
        SendOpcode::RdmaWriteWithImm => SrdPacketKind::WriteImm,
        SendOpcode::RdmaRead => SrdPacketKind::Read,
        _ => return None,
    })
}

fn peer_of(wqe: &SendWqe) -> Option<(IpAddr, Qpn)> {
    wqe.ud().map(|ud| (ud.path.flow.destination, ud.qpn))
}

fn complete<H: Host>(settings: &QpSettings, wqe: &SendWqe, status: WcStatus, vendor_err: u32, host: &mut H) {
    let opcode = wqe.info().completion;
    count_ended(&settings.context, opcode, status, host);
    let completion = WorkCompletion {
        wr_id: wqe.wr_id,
        status,
        vendor_err,
        // EFA has no completion opcode for READ.
        opcode: if opcode == WcOpcode::RdmaRead { WcOpcode::Send } else { opcode },
        byte_len: wqe.span.length_bytes,
        qp_num: settings.context.qpn.value(),
        src_qp: peer_of(wqe).map_or(0, |(_, qpn)| qpn.value()),
        ..WorkCompletion::default()
    };
    host.complete_send(&settings.context, completion, 1);
}

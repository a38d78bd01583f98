//! The side that sends messages: an entry for each posted request, and parts that are sent until they are
//! answered.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use super::header::{HEADER_BYTES, Header, Kind, MAX_RDMA_BYTES, MAX_SEND_BYTES, Reason, parts_of};
use super::packet::{To, send_packet};
use super::window::{Parts, SPAN, WINDOW_PARTS};
use crate::event::Side;
use crate::host::{Host, MemoryError, Transmit};
use crate::qp::outbound::{Emitted, Progress};
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::Settings;
use crate::types::{SendOpcode, SendRequest, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::{Psn, Qpn};

/// Messages that are under way at once.
const MOST_ACTIVE: usize = 64;
/// Parts of all messages that are under way at once.
const MOST_PARTS: u32 = 256;
/// Peers of which the next message's number is kept, where no message is under way.
const MOST_PEERS: usize = 4096;
/// Until the first repetition; the time doubles each time, up to the longest.
const FIRST_WAIT_NS: u64 = 8_000_000;
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// Repetitions without any answer before a message is given up: some ten seconds.
const MOST_REPETITIONS: u32 = 16;
/// After the peer had no receive request.
const NOT_READY_WAIT_NS: u64 = 1_000_000;
/// `rnr_retry` that stands for ever.
const FOR_EVER: u8 = 7;
/// How long a message may be held back to be overtaken.
const HOLD_NS: u64 = 100_000;

/// In which order messages leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SrdOrder {
    /// As the seed says: each is held back for a short time, and overtaken.
    Seed(u64),
    /// As they were posted.
    InOrder,
    /// Of those that were posted within a short time, the newest first.
    Reverse,
}

/// A request that waits for its turn.
#[derive(Debug)]
struct Waiting {
    wqe: SendWqe,
    /// It cannot be carried out.
    fault: Option<WcStatus>,
    /// It leaves from then on; none: it has not been looked at.
    from_ns: Option<u64>,
    /// The oldest message to its peer has to end first: until some message has ended, nothing is to be done.
    is_beyond_span: bool,
}

/// A message that is under way.
#[derive(Debug)]
struct Active {
    wqe: SendWqe,
    kind: Kind,
    peer: (IpAddr, Qpn),
    epoch: u64,
    number: u64,
    part_bytes: u16,
    count: u32,
    parts: Parts,
    /// Of the parts from the first missing one on, those that were sent since the last repetition.
    sent: u64,
    /// All parts have arrived, and the peer shall say again how the message ended.
    asks: bool,
    /// When parts are sent again.
    deadline_ns: u64,
    /// Nothing is sent before; 0: it may be.
    held_until_ns: u64,
    repetitions: u32,
    not_ready_left: u8,
}

/// A queue pair that gets messages.
#[derive(Debug)]
struct Peer {
    epoch: u64,
    next: u64,
}

#[derive(Debug)]
pub(super) struct Sender {
    capacity: usize,
    order: SrdOrder,
    /// State of the random numbers.
    chance: u64,
    waiting: VecDeque<Waiting>,
    active: Vec<Active>,
    peers: BTreeMap<(IpAddr, Qpn), Peer>,
}

impl Sender {
    pub(super) fn new(capacity: u32, order: SrdOrder) -> Sender {
        let chance = if let SrdOrder::Seed(seed) = order { seed } else { 0 };
        Sender {
            capacity: capacity as usize,
            order,
            chance,
            waiting: VecDeque::new(),
            active: Vec::new(),
            peers: BTreeMap::new(),
        }
    }

    pub(super) fn order(&self) -> SrdOrder {
        self.order
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= self.capacity
    }

    /// Requests that have not ended.
    pub(super) fn count(&self) -> usize {
        self.waiting.len() + self.active.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn post(&mut self, request: &SendRequest<'_>, length_bytes: u32, fault: Option<WcStatus>) {
        let wqe = SendWqe::of(request, true, length_bytes);
        let fault = fault.or_else(|| (!fits(&wqe)).then_some(WcStatus::LocLenErr));
        self.waiting.push_back(Waiting { wqe, fault, from_ns: None, is_beyond_span: false });
    }

    /// A number that only the seed tells (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.chance;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }

    pub(super) fn wants_to_send(&self) -> bool {
        self.may_begin().next().is_some() || self.active.iter().any(Active::has_unsent)
    }

    /// The requests that come under way next.
    fn may_begin(&self) -> impl Iterator<Item = &Waiting> {
        let has_room = self.active.len() < MOST_ACTIVE;
        let first = self.waiting.iter().take(if has_room { MOST_ACTIVE } else { 0 });
        first.filter(|waiting| !waiting.is_beyond_span)
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let active = self.active.iter().map(|active| match active.held_until_ns {
            0 => active.deadline_ns,
            held_until_ns => held_until_ns,
        });
        active.chain(self.may_begin().filter_map(|waiting| waiting.from_ns)).min()
    }

    /// Messages that have waited for long enough come under way, in the order that was asked for.
    fn activate<H: Host>(&mut self, settings: &Settings, now_ns: u64, host: &mut H) {
        for index in 0..self.waiting.len().min(MOST_ACTIVE) {
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
        while self.active.len() < MOST_ACTIVE {
            let ready = self.waiting.iter().take(MOST_ACTIVE).enumerate();
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

    /// Whether the oldest message to its peer has to end first.
    fn is_beyond_span(&self, waiting: &Waiting) -> bool {
        let Some(to) = peer_of(&waiting.wqe) else { return false };
        self.peers.get(&to).is_some_and(|peer| peer.next - self.floor(to, peer.next) >= SPAN)
    }

    /// The oldest message to a peer that has not ended.
    fn floor(&self, to: (IpAddr, Qpn), next: u64) -> u64 {
        let under_way = self.active.iter().filter(|active| active.peer == to);
        under_way.map(|active| active.number).min().unwrap_or(next)
    }

    fn begin<H: Host>(&mut self, settings: &Settings, waiting: Waiting, now_ns: u64, host: &mut H) {
        let Waiting { wqe, fault, .. } = waiting;
        let kind = kind_of(wqe.opcode);
        let peer = peer_of(&wqe);
        let (None, Some(kind), Some(to)) = (fault, kind, peer) else {
            let status = fault.unwrap_or(WcStatus::LocQpOpErr);
            let reason = if status == WcStatus::LocLenErr { Reason::Length as u32 } else { 3 };
            return complete(settings, &wqe, status, reason, host);
        };
        if self.peers.len() >= MOST_PEERS && !self.peers.contains_key(&to) {
            let active = &self.active;
            self.peers.retain(|peer, _| active.iter().any(|active| active.peer == *peer));
        }
        let peer = self.peers.entry(to).or_insert(Peer { epoch: now_ns, next: 0 });
        let (number, epoch) = (peer.next, peer.epoch);
        peer.next += 1;
        let room = settings.mtu_bytes.saturating_sub(HEADER_BYTES) & !3;
        let part_bytes = u16::try_from(room).unwrap_or(u16::MAX - 3);
        let count = parts_of(wqe.length_bytes, part_bytes);
        let parts = Parts::default();
        self.active.push(Active {
            wqe,
            kind,
            peer: to,
            epoch,
            number,
            part_bytes,
            count,
            parts,
            sent: 0,
            asks: false,
            deadline_ns: now_ns.saturating_add(FIRST_WAIT_NS),
            held_until_ns: 0,
            repetitions: 0,
            not_ready_left: settings.rnr_retry,
        });
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
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
                Err(_) => self.end(index, settings, Reason::LocalKey, host),
            }
        }
        Progress::Idle
    }

    /// A message ends.
    fn end<H: Host>(&mut self, index: usize, settings: &Settings, reason: Reason, host: &mut H) {
        if index < self.active.len() {
            let active = self.active.remove(index);
            self.waiting.iter_mut().take(MOST_ACTIVE).for_each(|waiting| waiting.is_beyond_span = false);
            complete(settings, &active.wqe, reason.status(), reason as u32, host);
        }
    }

    /// An answer came.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &Settings,
        from: (IpAddr, Qpn),
        header: &Header,
        data: &[u8],
        now_ns: u64,
        host: &mut H,
    ) {
        let is_it = |active: &Active| {
            (active.peer, active.number, active.epoch) == (from, header.message, header.epoch)
        };
        let Some(index) = self.active.iter().position(is_it) else { return };
        let Some(active) = self.active.get_mut(index) else { return };
        let ended = match header.kind {
            Kind::Data if active.kind == Kind::Read => active.store(settings, header, data, now_ns, host),
            Kind::Progress if active.kind != Kind::Read => {
                active.hear(header, now_ns);
                None
            }
            Kind::NotReady if active.kind.takes_receive() => {
                active.hear(header, now_ns);
                active.wait_for_receive(now_ns);
                None
            }
            // A READ that went well ends with its last data.
            Kind::Done if header.reason != 0 || active.kind != Kind::Read => Some(Reason::of(header.reason)),
            _ => None,
        };
        if let Some(reason) = ended {
            self.end(index, settings, reason, host);
        }
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &Settings, now_ns: u64, host: &mut H) {
        let mut index = 0;
        while let Some(active) = self.active.get_mut(index) {
            if active.held_until_ns == 0 && active.deadline_ns <= now_ns {
                // One that found no room to send anything has not been in vain.
                active.repetitions += u32::from(active.sent != 0 || active.is_there());
                if active.repetitions > MOST_REPETITIONS {
                    let reason = active.given_up();
                    self.end(index, settings, reason, host);
                    continue;
                }
                active.repeat(now_ns);
            }
            index += 1;
        }
    }

    pub(super) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        let active = core::mem::take(&mut self.active).into_iter().map(|active| active.wqe);
        let waiting = core::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.wqe);
        for wqe in active.chain(waiting) {
            complete(settings, &wqe, WcStatus::WrFlushErr, Reason::Flushed as u32, host);
        }
    }
}

impl Active {
    /// All parts have arrived.
    fn is_there(&self) -> bool {
        self.parts.first_missing >= self.count
    }

    /// Some part, or a question how it ended, waits to be sent.
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
        settings: &Settings,
        (floor, now_ns): (u64, u64),
        under_way: &mut u32,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, MemoryError> {
        if self.held_until_ns > now_ns {
            return Ok(Progress::Idle);
        }
        self.held_until_ns = 0;
        if self.is_there() {
            if core::mem::take(&mut self.asks) {
                let emitted = self.send_part(settings, self.count - 1, floor, next_psn, host, sink)?;
                self.asks = emitted == Emitted::NoRoom;
                return Ok(if self.asks { Progress::Blocked } else { Progress::Idle });
            }
            return Ok(Progress::Idle);
        }
        for ahead in 0..WINDOW_PARTS {
            let part = self.parts.first_missing + ahead;
            if part >= self.count || *under_way >= MOST_PARTS {
                break;
            }
            if self.sent >> ahead & 1 != 0 || !self.parts.awaits(part) {
                continue;
            }
            if self.send_part(settings, part, floor, next_psn, host, sink)? == Emitted::NoRoom {
                return Ok(Progress::Blocked);
            }
            self.sent |= 1 << ahead;
            *under_way += 1;
            self.deadline_ns = now_ns.saturating_add(self.wait_ns());
        }
        Ok(Progress::Idle)
    }

    fn send_part<H: Host, T: Transmit>(
        &self,
        settings: &Settings,
        part: u32,
        floor: u64,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Emitted, MemoryError> {
        let Some(ud) = self.wqe.ud() else { return Ok(Emitted::Packet) };
        let is_last_try = self.kind.takes_receive() && self.not_ready_left == 0;
        let header = Header {
            kind: self.kind,
            reason: if is_last_try { Reason::NotReady as u8 } else { 0 },
            part_bytes: self.part_bytes,
            qkey: settings.qkey,
            epoch: self.epoch,
            message: self.number,
            floor,
            part,
            total: self.wqe.length_bytes,
            address: self.wqe.remote.address,
            rkey: self.wqe.remote.rkey,
            imm: self.wqe.imm_data,
        };
        let data_bytes = if self.kind.carries_data() { header.length().unwrap_or(0) } else { 0 };
        let (side, message, transmission) = (Side::Requester, self.number, self.repetitions + 1);
        let to = To { path: &ud.path, qpn: ud.qpn, qkey: ud.qkey, side, message, transmission };
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

    /// Why a message ends whose peer has been silent for too long. A peer at an address of
    /// loopback is on this host, whose adapter would answer that it has no such queue pair.
    fn given_up(&self) -> Reason {
        if self.peer.0.is_loopback() { Reason::NoQueuePair } else { Reason::Unresponsive }
    }

    fn wait_ns(&self) -> u64 {
        FIRST_WAIT_NS.saturating_mul(1 << self.repetitions.min(16)).min(LONGEST_WAIT_NS)
    }

    /// The peer says which parts it has.
    fn hear(&mut self, header: &Header, now_ns: u64) {
        let said = Parts { first_missing: header.part, beyond: header.floor };
        self.change(now_ns, |parts, count| parts.merge(said, count));
    }

    /// Changes what has arrived; true if that is news.
    fn change(&mut self, now_ns: u64, change: impl FnOnce(&mut Parts, u32) -> bool) {
        let before = self.parts.first_missing;
        if change(&mut self.parts, self.count) {
            self.sent = self.sent.checked_shr(self.parts.first_missing - before).unwrap_or(0);
            self.repetitions = 0;
            self.deadline_ns = now_ns.saturating_add(FIRST_WAIT_NS);
        }
    }

    /// What is missing is sent again.
    fn repeat(&mut self, now_ns: u64) {
        self.sent = 0;
        self.asks = self.is_there();
        self.deadline_ns = now_ns.saturating_add(self.wait_ns());
    }

    /// The peer has no receive request. To the last try it answers that the message has ended.
    fn wait_for_receive(&mut self, now_ns: u64) {
        if self.held_until_ns > now_ns || self.not_ready_left == 0 {
            // It said so of an earlier repetition.
            return;
        }
        if self.not_ready_left < FOR_EVER {
            self.not_ready_left -= 1;
        }
        self.repetitions = 0;
        self.repeat(now_ns);
        self.held_until_ns = now_ns.saturating_add(NOT_READY_WAIT_NS);
    }

    /// Data that was asked for.
    fn store<H: Host>(
        &mut self,
        settings: &Settings,
        header: &Header,
        data: &[u8],
        now_ns: u64,
        host: &mut H,
    ) -> Option<Reason> {
        let own = (self.wqe.length_bytes, self.part_bytes);
        if (header.total, header.part_bytes) != own || header.length() != Some(data.len()) {
            return None;
        }
        let part = header.part;
        if self.parts.awaits(part) {
            if host.scatter(settings.context.pd, self.wqe.sges(), header.offset(), data).is_err() {
                return Some(Reason::LocalKey);
            }
            self.change(now_ns, |parts, _| {
                parts.add(part);
                true
            });
        }
        self.is_there().then_some(Reason::None)
    }
}

fn fits(wqe: &SendWqe) -> bool {
    let most = match wqe.opcode {
        SendOpcode::Send | SendOpcode::SendWithImm => MAX_SEND_BYTES,
        _ => MAX_RDMA_BYTES,
    };
    wqe.length_bytes <= most
}

fn kind_of(opcode: SendOpcode) -> Option<Kind> {
    Some(match opcode {
        SendOpcode::Send => Kind::Send,
        SendOpcode::SendWithImm => Kind::SendImm,
        SendOpcode::RdmaWrite => Kind::Write,
        SendOpcode::RdmaWriteWithImm => Kind::WriteImm,
        SendOpcode::RdmaRead => Kind::Read,
        _ => return None,
    })
}

fn peer_of(wqe: &SendWqe) -> Option<(IpAddr, Qpn)> {
    wqe.ud().map(|ud| (ud.path.flow.destination, ud.qpn))
}

fn complete<H: Host>(settings: &Settings, wqe: &SendWqe, status: WcStatus, vendor_err: u32, host: &mut H) {
    let opcode = wqe.info().completion;
    let completion = WorkCompletion {
        wr_id: wqe.wr_id,
        status,
        vendor_err,
        // EFA has no completion of its own for READ.
        opcode: if opcode == WcOpcode::RdmaRead { WcOpcode::Send } else { opcode },
        byte_len: wqe.length_bytes,
        qp_num: settings.context.qpn.value(),
        src_qp: peer_of(wqe).map_or(0, |(_, qpn)| qpn.value()),
        ..WorkCompletion::default()
    };
    host.complete_send(&settings.context, completion, 1);
}

//! A message of an initiator that is under way.

use core::net::IpAddr;

use super::header::{HEADER_BYTES, Header, Kind, OPERAND_BYTES, QKEY};
use crate::event::Side;
use crate::host::{Ended, Host, MemoryError, Transmit};
use crate::qp::outbound::{Emitted, Progress};
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::Settings;
use crate::qp::srd::{Parts, To, WINDOW_PARTS, parts_of, send_packet};
use crate::types::{SendFlags, SendOpcode, UdDestination, WcStatus, WorkCompletion};
use crate::wire::{Psn, Qpn};

/// `rnr_retry` that stands for ever.
const FOR_EVER: u8 = 7;

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) wqe: SendWqe,
    pub(super) to: UdDestination,
    pub(super) access_key: u64,
    /// It cannot be carried out.
    pub(super) fault: Option<WcStatus>,
}

#[derive(Debug)]
pub(super) struct Active {
    wqe: SendWqe,
    to: UdDestination,
    access_key: u64,
    kind: Kind,
    epoch: u64,
    number: u64,
    part_bytes: u16,
    count: u32,
    /// Parts that the target has, or of a READ those that have come back.
    parts: Parts,
    /// Of the parts from the first missing one on, those that were sent since it was last gone back.
    sent: u64,
    has_begun: bool,
    ending: Option<WcStatus>,
    not_ready_left: u8,
}

/// What a message needs to send its parts.
pub(super) struct Turn<'a> {
    pub(super) settings: &'a Settings,
    pub(super) stream: u16,
    pub(super) floor: u64,
    /// Parts that may come under way.
    pub(super) room_parts: &'a mut u32,
    pub(super) next_psn: &'a mut Psn,
    pub(super) transmission: u32,
}

impl Active {
    pub(super) fn new(settings: &Settings, waiting: Waiting, (epoch, number): (u64, u64)) -> Active {
        let Waiting { wqe, to, access_key, fault } = waiting;
        let (kind, part_bytes) = (kind_of(wqe.opcode), part_bytes(settings));
        let count =
            if kind.is_some_and(Kind::is_atomic) { 1 } else { parts_of(wqe.length_bytes, part_bytes) };
        Active {
            wqe,
            to,
            access_key,
            kind: kind.unwrap_or(Kind::Send),
            epoch,
            number,
            part_bytes,
            count,
            parts: Parts::default(),
            sent: 0,
            has_begun: false,
            ending: fault.or_else(|| kind.is_none().then_some(WcStatus::LocQpOpErr)),
            not_ready_left: settings.rnr_retry,
        }
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) const fn flags(&self) -> SendFlags {
        self.wqe.flags
    }

    /// It is a READ or an atomic.
    pub(super) const fn returns(&self) -> bool {
        self.kind.returns()
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ending.is_some()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.ending.is_some_and(|status| status != WcStatus::Success)
    }

    /// How it has ended, if it has.
    pub(super) const fn ending(&self) -> Option<WcStatus> {
        self.ending
    }

    pub(super) fn is_to(&self, to: &UdDestination) -> bool {
        (self.to.path.flow, self.to.qpn) == (to.path.flow, to.qpn)
    }

    /// An answer from there is for the way that it is on.
    pub(super) fn is_of(&self, from: (IpAddr, Qpn), epoch: u64) -> bool {
        (self.to.path.flow.destination, self.to.qpn) == from && self.epoch == epoch
    }

    /// It ends so, if it has not ended.
    pub(super) fn fail(&mut self, status: WcStatus) {
        self.ending.get_or_insert(status);
    }

    /// Parts that were sent and not answered.
    pub(super) fn parts_under_way(&self) -> u32 {
        if self.has_ended() { 0 } else { (self.sent & !self.parts.beyond).count_ones() }
    }

    /// Some part waits to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        if self.has_ended() || self.parts.first_missing >= self.count {
            return false;
        }
        let ahead = (self.count - self.parts.first_missing).min(WINDOW_PARTS);
        let window = if ahead == WINDOW_PARTS { u64::MAX } else { (1 << ahead) - 1 };
        window & !self.parts.beyond & !self.sent != 0
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        turn: &mut Turn<'_>,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, MemoryError> {
        while self.has_unsent() && *turn.room_parts > 0 {
            let ahead = (self.sent | self.parts.beyond).trailing_ones();
            if self.send_part(turn, self.parts.first_missing + ahead, host, sink)? == Emitted::NoRoom {
                return Ok(Progress::Blocked);
            }
            self.sent |= 1 << ahead;
            self.has_begun = true;
            *turn.room_parts -= 1;
        }
        Ok(Progress::Idle)
    }

    fn send_part<H: Host, T: Transmit>(
        &self,
        turn: &mut Turn<'_>,
        part: u32,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Emitted, MemoryError> {
        let settings = turn.settings;
        let header = Header {
            kind: self.kind,
            reason: 0,
            part_bytes: self.part_bytes,
            stream: turn.stream,
            solicited: self.wqe.flags.contains(SendFlags::SOLICITED),
            rnr_timer: 0,
            epoch: self.epoch,
            message: self.number,
            floor: turn.floor,
            part,
            total: self.wqe.length_bytes,
            address: self.wqe.remote.address,
            rkey: self.wqe.remote.rkey,
            imm: self.wqe.imm_data,
            key: self.access_key,
        };
        let data_bytes = match self.kind {
            kind if kind.is_atomic() => OPERAND_BYTES,
            kind if kind.carries_parts() => header.length().unwrap_or(0),
            _ => 0,
        };
        let to = To {
            path: &self.to.path,
            qpn: self.to.qpn,
            qkey: QKEY,
            side: Side::Requester,
            message: self.number,
            transmission: turn.transmission,
        };
        send_packet(settings, &to, (&header.bytes(), data_bytes), turn.next_psn, host, sink, |data, host| {
            if self.kind.is_atomic() {
                self.write_operands(data);
            } else if self.wqe.is_inline() {
                let start = header.offset() as usize;
                if let Some(inline) = self.wqe.inline_data().get(start..start + data.len()) {
                    data.copy_from_slice(inline);
                }
            } else {
                host.gather(settings.context.pd, self.wqe.sges(), header.offset(), data)?;
            }
            Ok(())
        })
    }

    fn write_operands(&self, data: &mut [u8]) {
        use crate::types::AtomicOperation as Op;
        let (first, second) = match self.wqe.atomic() {
            Some(Op::CompareSwap { compare, swap }) => (compare, swap),
            Some(Op::FetchAdd { add }) => (add, 0),
            _ => (0, 0),
        };
        for (room, word) in data.chunks_exact_mut(8).zip([first, second]) {
            room.copy_from_slice(&word.to_be_bytes());
        }
    }

    /// The target has carried out everything before a part of a message. True: that is news about this one.
    pub(super) fn hear(&mut self, message: u64, part: u32) -> bool {
        if self.returns() || self.has_ended() || self.number > message {
            // What a READ or an atomic brings may still be on its way.
            return false;
        }
        if self.number < message {
            self.ending = Some(WcStatus::Success);
            return true;
        }
        // The whole of it is there only when the target says the number of the next one.
        self.advance(part.min(self.count - 1))
    }

    fn advance(&mut self, first_missing: u32) -> bool {
        let Some(by) = first_missing.checked_sub(self.parts.first_missing).filter(|by| *by > 0) else {
            return false;
        };
        self.sent = self.sent.checked_shr(by).unwrap_or(0);
        self.parts.first_missing = first_missing;
        true
    }

    /// What came back is stored. True: that is news.
    pub(super) fn store<H: Host>(
        &mut self,
        settings: &Settings,
        header: &Header,
        data: &[u8],
        host: &mut H,
    ) -> bool {
        if self.has_ended() {
            return false;
        }
        if header.kind == Kind::Value && self.kind.is_atomic() {
            let Ok(value) = data.try_into().map(u64::from_be_bytes) else { return false };
            let stored = host.scatter(settings.context.pd, self.wqe.sges(), 0, &value.to_ne_bytes());
            self.ending = Some(stored.map_or(WcStatus::LocProtErr, |()| WcStatus::Success));
            return true;
        }
        let own = (self.wqe.length_bytes, self.part_bytes);
        let is_its = header.kind == Kind::Data && self.kind == Kind::Read;
        if !is_its || (header.total, header.part_bytes) != own || header.length() != Some(data.len()) {
            return false;
        }
        if !self.parts.awaits(header.part) {
            return false;
        }
        if host.scatter(settings.context.pd, self.wqe.sges(), header.offset(), data).is_err() {
            self.ending = Some(WcStatus::LocProtErr);
            return true;
        }
        let before = self.parts.first_missing;
        self.parts.add(header.part);
        self.sent = self.sent.checked_shr(self.parts.first_missing - before).unwrap_or(0);
        if self.parts.first_missing >= self.count {
            self.ending = Some(WcStatus::Success);
        }
        true
    }

    /// The target has no receive request. False: it was asked often enough.
    pub(super) fn waits_for_receive(&mut self) -> bool {
        if self.not_ready_left == 0 {
            return false;
        }
        if self.not_ready_left < FOR_EVER {
            self.not_ready_left -= 1;
        }
        true
    }

    /// What is missing is sent again.
    pub(super) fn go_back(&mut self) {
        self.sent = 0;
    }

    /// How it ends if the host has a say.
    pub(super) fn judged<H: Host>(&self, settings: &Settings, status: WcStatus, host: &mut H) -> WcStatus {
        if status != WcStatus::Success || !host.judges() {
            return status;
        }
        let ended = Ended {
            connection: settings.connection,
            qp_type: settings.qp_type,
            opcode: self.wqe.info().completion,
            length_bytes: self.wqe.length_bytes,
            reports: self.wqe.signaled,
            before: self.number,
        };
        host.judge(&settings.context, &ended).unwrap_or(status)
    }

    /// Its completion; one that succeeds makes one only if it was asked for.
    pub(super) fn complete<H: Host>(
        &self,
        settings: &Settings,
        status: WcStatus,
        unreported: &mut u32,
        host: &mut H,
    ) {
        if status == WcStatus::Success && !self.wqe.signaled {
            *unreported += 1;
            return;
        }
        let completion = WorkCompletion {
            wr_id: self.wqe.wr_id,
            status,
            opcode: self.wqe.info().completion,
            byte_len: self.wqe.length_bytes,
            qp_num: settings.context.qpn.value(),
            src_qp: self.to.qpn.value(),
            ..WorkCompletion::default()
        };
        let released = core::mem::take(unreported) + 1;
        host.complete_send(&settings.context, completion, released);
    }
}

fn kind_of(opcode: SendOpcode) -> Option<Kind> {
    Some(match opcode {
        SendOpcode::Send => Kind::Send,
        SendOpcode::SendWithImm => Kind::SendImm,
        SendOpcode::RdmaWrite => Kind::Write,
        SendOpcode::RdmaWriteWithImm => Kind::WriteImm,
        SendOpcode::RdmaRead => Kind::Read,
        SendOpcode::CompareSwap => Kind::CompareSwap,
        SendOpcode::FetchAdd => Kind::FetchAdd,
        _ => return None,
    })
}

/// Bytes of a part: what a datagram has room for.
fn part_bytes(settings: &Settings) -> u16 {
    u16::try_from(settings.mtu_bytes.saturating_sub(HEADER_BYTES) & !3).unwrap_or(u16::MAX - 3)
}

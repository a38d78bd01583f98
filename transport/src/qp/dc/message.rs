//! An outstanding message of an initiator.

use core::net::IpAddr;

use super::header::{DcHeader, DcPacketKind, HEADER_BYTES, OPERAND_BYTES, QKEY};
use crate::event::PacketSide;
use crate::host::{Ended, Host, MemoryError, Transmit, count_ended};
use crate::qp::outbound::{EmitOutcome, Progress};
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::QpSettings;
use crate::qp::srd::{PacketDestination, PartSet, WINDOW_PARTS, parts_of, send_packet};
use crate::types::{SendFlags, SendOpcode, UdDestination, WcStatus, WorkCompletion};
use crate::wire::{Psn, Qpn};

/// Value of `rnr_retry` that stands for ever.
const FOR_EVER: u8 = 7;

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct DcQueuedRequest {
    pub(super) wqe: SendWqe,
    pub(super) to: UdDestination,
    pub(super) access_key: u64,
    /// Status of a request that cannot be executed.
    pub(super) fault: Option<WcStatus>,
}

#[derive(Debug)]
pub(super) struct DcActiveMessage {
    wqe: SendWqe,
    to: UdDestination,
    access_key: u64,
    kind: DcPacketKind,
    epoch: u64,
    number: u64,
    part_bytes: u16,
    count: u32,
    /// Parts that the target has; for a READ, parts that have come back.
    parts: PartSet,
    /// Bits of the parts sent since the last retransmission, from the first missing part on.
    sent: u64,
    has_begun: bool,
    ending: Option<WcStatus>,
    not_ready_left: u8,
}

/// Resources that a message needs to send its parts.
pub(super) struct DcSendContext<'a> {
    pub(super) settings: &'a QpSettings,
    pub(super) stream: u16,
    pub(super) floor: u64,
    /// Number of parts that may still become outstanding.
    pub(super) room_parts: &'a mut u32,
    pub(super) next_psn: &'a mut Psn,
    pub(super) transmission: u32,
}

impl DcActiveMessage {
    pub(super) fn new(
        settings: &QpSettings,
        waiting: DcQueuedRequest,
        (epoch, number): (u64, u64),
    ) -> DcActiveMessage {
        let DcQueuedRequest { wqe, to, access_key, fault } = waiting;
        let (kind, part_bytes) = (kind_of(wqe.opcode), part_bytes(settings));
        let count = if kind.is_some_and(DcPacketKind::is_atomic) {
            1
        } else {
            parts_of(wqe.span.length_bytes, part_bytes)
        };
        DcActiveMessage {
            wqe,
            to,
            access_key,
            kind: kind.unwrap_or(DcPacketKind::Send),
            epoch,
            number,
            part_bytes,
            count,
            parts: PartSet::default(),
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

    /// Reports whether the message is a READ or an atomic.
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

    /// Returns the status with which the message has ended, if it has.
    pub(super) const fn ending(&self) -> Option<WcStatus> {
        self.ending
    }

    pub(super) fn is_to(&self, to: &UdDestination) -> bool {
        (self.to.path.flow, self.to.qpn) == (to.path.flow, to.qpn)
    }

    /// Reports whether an answer from an address is for the sequence that the message belongs to.
    pub(super) fn is_of(&self, from: (IpAddr, Qpn), epoch: u64) -> bool {
        (self.to.path.flow.destination, self.to.qpn) == from && self.epoch == epoch
    }

    /// Ends the message with a status, if it has not ended.
    pub(super) fn fail(&mut self, status: WcStatus) {
        self.ending.get_or_insert(status);
    }

    /// Counts the parts that were sent and not answered.
    pub(super) fn parts_under_way(&self) -> u32 {
        if self.has_ended() { 0 } else { (self.sent & !self.parts.beyond).count_ones() }
    }

    /// Reports whether some part waits to be sent.
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
        turn: &mut DcSendContext<'_>,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, MemoryError> {
        while self.has_unsent() && *turn.room_parts > 0 {
            let ahead = (self.sent | self.parts.beyond).trailing_ones();
            if self.send_part(turn, self.parts.first_missing + ahead, host, sink)? == EmitOutcome::NoRoom {
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
        turn: &mut DcSendContext<'_>,
        part: u32,
        host: &mut H,
        sink: &mut T,
    ) -> Result<EmitOutcome, MemoryError> {
        let settings = turn.settings;
        let header = DcHeader {
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
            total: self.wqe.span.length_bytes,
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
        let to = PacketDestination {
            path: &self.to.path,
            qpn: self.to.qpn,
            qkey: QKEY,
            side: PacketSide::Requester,
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

    /// Handles the target's report that it has executed everything before a part of a message. Returns true
    /// if this is news about this message.
    pub(super) fn handle_progress(&mut self, message: u64, part: u32) -> bool {
        if self.returns() || self.has_ended() || self.number > message {
            // The data of a READ or an atomic may still be on its way.
            return false;
        }
        if self.number < message {
            self.ending = Some(WcStatus::Success);
            return true;
        }
        // The message is complete only when the target names the number of the next one.
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

    /// Stores data that came back. Returns true if it is new.
    pub(super) fn store<H: Host>(
        &mut self,
        settings: &QpSettings,
        header: &DcHeader,
        data: &[u8],
        host: &mut H,
    ) -> bool {
        if self.has_ended() {
            return false;
        }
        if header.kind == DcPacketKind::Value && self.kind.is_atomic() {
            let Ok(value) = data.try_into().map(u64::from_be_bytes) else { return false };
            let stored = host.scatter(settings.context.pd, self.wqe.sges(), 0, &value.to_ne_bytes());
            self.ending = Some(stored.map_or(WcStatus::LocProtErr, |()| WcStatus::Success));
            return true;
        }
        let own = (self.wqe.span.length_bytes, self.part_bytes);
        let is_its = header.kind == DcPacketKind::Data && self.kind == DcPacketKind::Read;
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

    /// Handles a target without a receive request. Returns false if the retries are used up.
    pub(super) fn waits_for_receive(&mut self) -> bool {
        if self.not_ready_left == 0 {
            return false;
        }
        if self.not_ready_left < FOR_EVER {
            self.not_ready_left -= 1;
        }
        true
    }

    /// Sends the missing parts again.
    pub(super) fn go_back(&mut self) {
        self.sent = 0;
    }

    /// Returns the status of the completion, after asking the host if it judges.
    pub(super) fn judged<H: Host>(&self, settings: &QpSettings, status: WcStatus, host: &mut H) -> WcStatus {
        if status != WcStatus::Success || !host.judges() {
            return status;
        }
        let ended = Ended {
            connection: settings.connection,
            qp_type: settings.qp_type,
            opcode: self.wqe.info().completion,
            length_bytes: self.wqe.span.length_bytes,
            reports: self.wqe.signaled,
            before: self.number,
        };
        host.judge(&settings.context, &ended).unwrap_or(status)
    }

    /// Completes the message; success makes a completion only if it was asked for.
    pub(super) fn complete<H: Host>(
        &self,
        settings: &QpSettings,
        status: WcStatus,
        unreported: &mut u32,
        host: &mut H,
    ) {
        count_ended(&settings.context, self.wqe.info().completion, status, host);
        if status == WcStatus::Success && !self.wqe.signaled {
            *unreported += 1;
            return;
        }
        let completion = WorkCompletion {
            wr_id: self.wqe.wr_id,
            status,
            opcode: self.wqe.info().completion,
            byte_len: self.wqe.span.length_bytes,
            qp_num: settings.context.qpn.value(),
            src_qp: self.to.qpn.value(),
            ..WorkCompletion::default()
        };
        let released = core::mem::take(unreported) + 1;
        host.complete_send(&settings.context, completion, released);
    }
}

fn kind_of(opcode: SendOpcode) -> Option<DcPacketKind> {
    Some(match opcode {
        SendOpcode::Send => DcPacketKind::Send,
        SendOpcode::SendWithImm => DcPacketKind::SendImm,
        SendOpcode::RdmaWrite => DcPacketKind::Write,
        SendOpcode::RdmaWriteWithImm => DcPacketKind::WriteImm,
        SendOpcode::RdmaRead => DcPacketKind::Read,
        SendOpcode::CompareSwap => DcPacketKind::CompareSwap,
        SendOpcode::FetchAdd => DcPacketKind::FetchAdd,
        _ => return None,
    })
}

/// Returns the length in bytes of a part: the room in a datagram.
fn part_bytes(settings: &QpSettings) -> u16 {
    u16::try_from(settings.mtu_bytes.saturating_sub(HEADER_BYTES) & !3).unwrap_or(u16::MAX - 3)
}

//! The requester's part of a lane: a request of one packet, and the acknowledgement of requests.

use core::slice;

use super::Requester;
use super::request::RequestPacket;
use crate::host::Host;
use crate::qp::lane::{LaneData, LaneSend};
use crate::qp::settings::QpSettings;
use crate::types::{QpCapacity, RemoteTarget, SendFlags, SendOpcode};
use crate::wire::{Bth, ICRC_BYTES, ImmDt, Operation, Psn, Reth};

/// A request that may leave by a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingLaneRequest {
    operation: Operation,
    header_bytes: usize,
    payload_bytes: usize,
    /// Length of the packet in bytes.
    pub(crate) length_bytes: usize,
}

impl OutgoingLaneRequest {
    /// Returns a request of one packet; `None` for operations that lanes do not carry.
    #[inline]
    fn new(opcode: SendOpcode, payload_bytes: usize) -> Option<OutgoingLaneRequest> {
        let (operation, header_bytes) = match opcode {
            SendOpcode::Send => (Operation::SendOnly, Bth::LEN),
            SendOpcode::SendWithImm => (Operation::SendOnlyImm, Bth::LEN + ImmDt::LEN),
            SendOpcode::RdmaWrite => (Operation::WriteOnly, Bth::LEN + Reth::LEN),
            SendOpcode::RdmaWriteWithImm => (Operation::WriteOnlyImm, Bth::LEN + Reth::LEN + ImmDt::LEN),
            _ => return None,
        };
        let length_bytes = header_bytes + payload_bytes.next_multiple_of(4) + ICRC_BYTES;
        Some(OutgoingLaneRequest { operation, header_bytes, payload_bytes, length_bytes })
    }

    /// Writes the headers and the pad, and returns the room for the payload.
    #[inline]
    fn emit<'a>(
        &self,
        settings: &QpSettings,
        psn: Psn,
        fields: &LaneFields,
        packet: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let &OutgoingLaneRequest { operation, header_bytes, payload_bytes, .. } = self;
        let mut bth = settings.bth(operation, psn);
        bth.solicited = fields.solicited;
        bth.ack_request = true;
        bth.pad_count = (payload_bytes.wrapping_neg() & 3) as u8;
        let (headers, body) = packet.split_at_mut_checked(header_bytes)?;
        bth.emit(headers);
        let is_write = matches!(operation, Operation::WriteOnly | Operation::WriteOnlyImm);
        if is_write && let Some(out) = headers.get_mut(Bth::LEN..) {
            let RemoteTarget { address, rkey } = fields.remote;
            Reth { address, rkey, length: payload_bytes as u32 }.emit(out);
        }
        let has_imm = matches!(operation, Operation::SendOnlyImm | Operation::WriteOnlyImm);
        if has_imm && let Some(out) = headers.last_chunk_mut::<{ ImmDt::LEN }>() {
            *out = fields.imm_data;
        }
        let (payload, rest) = body.split_at_mut_checked(payload_bytes)?;
        rest.get_mut(..usize::from(bth.pad_count))?.fill(0);
        Some(payload)
    }

    /// Returns what the requester notes about the packet.
    const fn packet(&self) -> RequestPacket {
        RequestPacket {
            operation: self.operation,
            response_count: None,
            payload_offset: 0,
            payload_bytes: self.payload_bytes,
            ends_message: true,
        }
    }
}

/// The fields of a request's headers that the program gives.
struct LaneFields {
    solicited: bool,
    remote: RemoteTarget,
    imm_data: [u8; 4],
}

impl Requester {
    /// Reports whether a decision is pending, or packets leave at a rate: then no request takes a lane.
    #[inline]
    fn decides_before_sending(&self) -> bool {
        self.retries.rnr_until_ns.is_some()
            || self.failures.local_failure.is_some()
            || self.failures.judged.is_some()
            || self.has_injected_answer()
            || self.pacer.is_some()
    }

    /// Reports whether the window has room for a packet with this PSN.
    #[inline]
    fn has_window_for(&self, psn: Psn) -> bool {
        (psn.since(self.psns.acked).max(0) as u32) < self.window.packets()
    }

    /// Returns the request at the cursor, if it is the newest one, is one packet of a SEND or WRITE, and has
    /// to wait for nothing.
    #[inline]
    pub(crate) fn lane_request(&self, settings: &QpSettings) -> Option<OutgoingLaneRequest> {
        if self.decides_before_sending()
            || self.position.cursor_packet != 0
            || self.position.cursor + 1 != self.queue.tail()
        {
            return None;
        }
        let wqe = self.queue.entry(self.position.cursor)?;
        let payload_bytes = wqe.span.length_bytes as usize;
        let is_plain = wqe.span.packet_count == 1
            && payload_bytes <= settings.mtu_bytes
            && !wqe.flags.contains(SendFlags::FENCE)
            && wqe.fault().is_none();
        (is_plain && self.has_window_for(wqe.span.first_psn))
            .then(|| OutgoingLaneRequest::new(wqe.opcode, payload_bytes))
            .flatten()
    }

    /// Writes the packet of a request that [`Requester::lane_request`] has returned, and moves on. Returns
    /// `None`, and does not move on, if its data is not available.
    #[inline]
    pub(crate) fn send_lane_request<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &OutgoingLaneRequest,
        now_ns: u64,
        host: &mut H,
        packet: &mut [u8],
    ) -> Option<()> {
        let wqe = self.queue.entry(self.position.cursor)?;
        let psn = wqe.span.first_psn;
        let solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let fields = LaneFields { solicited, remote: wqe.remote, imm_data: wqe.imm_data };
        let payload = request.emit(settings, psn, &fields, packet)?;
        if wqe.is_inline() {
            payload.copy_from_slice(wqe.inline_data().get(..request.payload_bytes)?);
        } else if !payload.is_empty() {
            host.gather(settings.context.pd, wqe.sges(), 0, payload).ok()?;
        }
        self.advance(settings, &request.packet(), psn, true, now_ns);
        Some(())
    }

    /// Returns the packet that a request would be which is posted now, if no other request waits, it is one
    /// packet of a SEND or WRITE, and has to wait for nothing.
    #[inline]
    pub(crate) fn lane_post(
        &self,
        settings: &QpSettings,
        capacity: &QpCapacity,
        send: &LaneSend<'_>,
    ) -> Option<OutgoingLaneRequest> {
        let payload_bytes = send.data.length_bytes();
        let may_be_posted = match send.data {
            LaneData::Nothing => true,
            LaneData::Inline(_) => payload_bytes <= capacity.max_inline_data as usize,
            LaneData::Buffer(_) => capacity.max_send_sge > 0,
        };
        let is_plain = may_be_posted
            && payload_bytes <= settings.mtu_bytes
            && !send.flags.contains(SendFlags::FENCE)
            && !self.decides_before_sending()
            && self.position.cursor_packet == 0
            && self.position.cursor == self.queue.tail()
            && !self.queue.is_full();
        (is_plain && self.has_window_for(self.psns.next_psn))
            .then(|| OutgoingLaneRequest::new(send.opcode, payload_bytes))
            .flatten()
    }

    /// Writes the packet of a request that [`Requester::lane_post`] has returned, and posts the request as
    /// one that has left. Returns `None`, and changes nothing, if its data is not available.
    #[inline]
    pub(crate) fn post_lane_request<H: Host>(
        &mut self,
        settings: &QpSettings,
        (request, send): (&OutgoingLaneRequest, &LaneSend<'_>),
        now_ns: u64,
        host: &mut H,
        packet: &mut [u8],
    ) -> Option<()> {
        let psn = self.psns.next_psn;
        let solicited = send.flags.contains(SendFlags::SOLICITED);
        let fields = LaneFields { solicited, remote: send.remote, imm_data: send.imm_data };
        let payload = request.emit(settings, psn, &fields, packet)?;
        match &send.data {
            LaneData::Inline(data) => payload.copy_from_slice(data),
            LaneData::Buffer(sge) if !payload.is_empty() => {
                host.gather(settings.context.pd, slice::from_ref(sge), 0, payload).ok()?;
            }
            LaneData::Buffer(_) | LaneData::Nothing => {}
        }
        let signaled = settings.signal_all || send.flags.contains(SendFlags::SIGNALED);
        if !self.queue.push_by_lane(send, signaled, psn) {
            return None;
        }
        self.psns.next_psn = psn.plus(1);
        self.advance(settings, &request.packet(), psn, true, now_ns);
        Some(())
    }

    /// Handles an ACK of `psn`, if it completes nothing but SENDs and WRITEs. Returns false if it has to be
    /// handled in the general way, which then finds acknowledged what it would have acknowledged first.
    #[inline]
    pub(crate) fn acknowledge_by_lane<H: Host>(
        &mut self,
        settings: &QpSettings,
        psn: Psn,
        now_ns: u64,
        host: &mut H,
    ) -> bool {
        let waits = self.failures.local_failure.is_some()
            || self.failures.judged.is_some()
            || self.has_injected_answer();
        if waits || psn.is_before(self.psns.acked) || !psn.is_before(self.psns.sent_end) {
            return false;
        }
        let end = psn.next();
        // Usually the ACK is that of the oldest request.
        match self.queue.entry(self.queue.head()) {
            Some(wqe) if !wqe.needs_response() && !wqe.is_local() && wqe.end_psn() == end => {
                self.advance_to(settings, end, now_ns, host);
                true
            }
            _ => self.acknowledge_before(settings, end, now_ns, host),
        }
    }
}

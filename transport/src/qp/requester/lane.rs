//! The requester's part of a lane: a request of one packet, and the acknowledgement of requests.

use super::Requester;
use super::request::RequestPacket;
use crate::host::Host;
use crate::qp::settings::QpSettings;
use crate::types::{SendFlags, SendOpcode};
use crate::wire::{Bth, ICRC_BYTES, ImmDt, Operation, Psn, Reth};

/// The request at the cursor, which may leave by a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutgoingLaneRequest {
    operation: Operation,
    header_bytes: usize,
    payload_bytes: usize,
    /// Length of the packet in bytes.
    pub(crate) length_bytes: usize,
}

impl Requester {
    /// Returns the request at the cursor, if it is the newest one, is one packet of a SEND or WRITE, and has
    /// to wait for nothing.
    #[inline]
    pub(crate) fn lane_request(&self, settings: &QpSettings) -> Option<OutgoingLaneRequest> {
        let waits = self.retries.rnr_until_ns.is_some()
            || self.failures.local_failure.is_some()
            || self.failures.judged.is_some()
            || self.has_injected_answer()
            || self.pacer.is_some();
        if waits || self.position.cursor_packet != 0 || self.position.cursor + 1 != self.queue.tail() {
            return None;
        }
        let wqe = self.queue.entry(self.position.cursor)?;
        let (operation, header_bytes) = match wqe.opcode {
            SendOpcode::Send => (Operation::SendOnly, Bth::LEN),
            SendOpcode::SendWithImm => (Operation::SendOnlyImm, Bth::LEN + ImmDt::LEN),
            SendOpcode::RdmaWrite => (Operation::WriteOnly, Bth::LEN + Reth::LEN),
            SendOpcode::RdmaWriteWithImm => (Operation::WriteOnlyImm, Bth::LEN + Reth::LEN + ImmDt::LEN),
            _ => return None,
        };
        let payload_bytes = wqe.span.length_bytes as usize;
        let is_plain = wqe.span.packet_count == 1
            && payload_bytes <= settings.mtu_bytes
            && !wqe.flags.contains(SendFlags::FENCE)
            && wqe.fault().is_none();
        let in_flight = wqe.span.first_psn.since(self.psns.acked).max(0) as u32;
        let length_bytes = header_bytes + payload_bytes.next_multiple_of(4) + ICRC_BYTES;
        (is_plain && in_flight < self.window.packets()).then_some(OutgoingLaneRequest {
            operation,
            header_bytes,
            payload_bytes,
            length_bytes,
        })
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
        let &OutgoingLaneRequest { operation, header_bytes, payload_bytes, .. } = request;
        let wqe = self.queue.entry(self.position.cursor)?;
        let psn = wqe.span.first_psn;
        let mut bth = settings.bth(operation, psn);
        bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
        bth.ack_request = true;
        bth.pad_count = (payload_bytes.wrapping_neg() & 3) as u8;
        let (headers, body) = packet.split_at_mut_checked(header_bytes)?;
        bth.emit(headers);
        let is_write = matches!(operation, Operation::WriteOnly | Operation::WriteOnlyImm);
        if is_write && let Some(out) = headers.get_mut(Bth::LEN..) {
            let length = wqe.span.length_bytes;
            Reth { address: wqe.remote.address, rkey: wqe.remote.rkey, length }.emit(out);
        }
        let has_imm = matches!(operation, Operation::SendOnlyImm | Operation::WriteOnlyImm);
        if has_imm && let Some(out) = headers.last_chunk_mut::<{ ImmDt::LEN }>() {
            *out = wqe.imm_data;
        }
        let (payload, rest) = body.split_at_mut_checked(payload_bytes)?;
        if wqe.is_inline() {
            payload.copy_from_slice(wqe.inline_data().get(..payload_bytes)?);
        } else if !payload.is_empty() {
            host.gather(settings.context.pd, wqe.sges(), 0, payload).ok()?;
        }
        rest.get_mut(..usize::from(bth.pad_count))?.fill(0);
        let sent = RequestPacket {
            operation,
            response_count: None,
            payload_offset: 0,
            payload_bytes,
            ends_message: true,
        };
        self.advance(settings, &sent, psn, true, now_ns);
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
        self.acknowledge_before(settings, psn.next(), now_ns, host)
    }
}

//! A request packet: its opcode, its position in the message, its headers.

use crate::qp::send_queue::SendWqe;
use crate::qp::settings::QpSettings;
use crate::types::{AtomicOperation, SendFlags, WrClass};
use crate::wire::{
    AtomicEth, Bth, Deth, Extensions, Feth, Ieth, ImmDt, Operation, Position, Psn, Reth, XrcEth,
};

/// Bit of a datagram's Q_Key that selects the sending queue pair's own Q_Key.
//= statement:41
//| A Q_Key with its highest bit set stands for the Q_Key of the sending queue pair.
const OWN_QKEY: u32 = 0x8000_0000;

/// The packet to send for packet number `k` of a WQE.
pub(super) struct RequestPacket {
    pub(super) operation: Operation,
    /// Number of PSNs of the responses to this packet alone, if the request needs responses.
    pub(super) response_count: Option<u32>,
    pub(super) payload_offset: u64,
    pub(super) payload_bytes: usize,
    pub(super) ends_message: bool,
}

impl RequestPacket {
    /// Describes packet number `k`; `None` if the WQE makes no packets.
    #[inline]
    pub(super) fn of(
        settings: &QpSettings,
        wqe: &SendWqe,
        k: u32,
        read_part_packets: u32,
    ) -> Option<RequestPacket> {
        let info = wqe.info();
        // A long READ is split into requests at fixed borders: a repeated part must lie inside one that the
        // responder knows.
        let response_count = info.needs_response().then(|| {
            let part = read_part_packets.max(1);
            wqe.span.packet_count.saturating_sub(k).max(1).min(part - k % part)
        });
        let ends_message = k + response_count.unwrap_or(1) >= wqe.span.packet_count;
        //= linux:rxe_req.c#rxe_requester
        //| Each packet but the last carries one path MTU.
        let payload_offset = u64::from(k) * settings.mtu_bytes as u64;
        let left = u64::from(wqe.span.length_bytes).saturating_sub(payload_offset);
        Some(RequestPacket {
            operation: info.packets.at(Position::of(k == 0, ends_message))?,
            response_count,
            payload_offset,
            payload_bytes: if info.data.is_sent() { left.min(settings.mtu_bytes as u64) as usize } else { 0 },
            ends_message,
        })
    }

    /// Returns the BTH, which does not ask for an acknowledgement yet.
    #[inline]
    pub(super) fn bth(&self, settings: &QpSettings, wqe: &SendWqe, psn: Psn) -> Bth {
        let mut bth = settings.bth(self.operation, psn);
        //= linux:rxe_req.c#init_req_packet
        //| Only the last packet of a message carries the solicited event bit.
        bth.solicited = self.ends_message && wqe.flags.contains(SendFlags::SOLICITED);
        if let Some(ud) = wqe.ud().filter(|_| settings.qp_type.is_datagram()) {
            bth.destination = ud.qpn;
        }
        bth
    }

    /// Writes the headers that the opcode has after the BTH.
    #[inline]
    pub(super) fn extend(&self, settings: &QpSettings, wqe: &SendWqe, extensions: &mut Extensions<'_>) {
        //= statement:47
        //| All request packets of XRC have an XRCETH.
        extensions.put(|| XrcEth { srqn: wqe.xrc_srqn });
        extensions.put(|| {
            let given = wqe.ud().map_or(OWN_QKEY, |ud| ud.qkey);
            let qkey = if given & OWN_QKEY != 0 { settings.qkey } else { given };
            Deth { qkey, source: settings.context.qpn }
        });
        extensions.put(|| {
            let (placement, selectivity) =
                wqe.flush().map_or((0, 0), |flush| (flush.placement, flush.selectivity));
            Feth { placement, selectivity }
        });
        extensions.put(|| self.reth(settings, wqe));
        extensions.put(|| {
            let (address, rkey) = (wqe.remote.address, wqe.remote.rkey);
            let (swap_or_add, compare) = wqe.atomic().map_or((0, 0), AtomicOperation::operands);
            AtomicEth { address, rkey, swap_or_add, compare }
        });
        extensions.put(|| ImmDt(wqe.imm_data));
        extensions.put(|| Ieth { rkey: wqe.invalidate_rkey });
    }

    /// Returns the remote memory: for a READ the part that this packet asks for, otherwise the range of the
    /// whole request.
    fn reth(&self, settings: &QpSettings, wqe: &SendWqe) -> Reth {
        let (offset, length) = match (wqe.info().class, wqe.flush()) {
            (WrClass::Read, _) => {
                //= statement:19
                //| A repeated READ asks for the missing rest with an address that is moved forward.
                let left = u64::from(wqe.span.length_bytes).saturating_sub(self.payload_offset);
                let most = u64::from(self.response_count.unwrap_or(1)) * settings.mtu_bytes as u64;
                (self.payload_offset, left.min(most) as u32)
            }
            (_, Some(flush)) => (0, flush.length),
            (_, None) => (0, wqe.span.length_bytes),
        };
        Reth { address: wqe.remote.address.wrapping_add(offset), rkey: wqe.remote.rkey, length }
    }
}

//! One request packet: its opcode, its place in the message, its headers.

use crate::qp::send_queue::SendWqe;
use crate::qp::settings::Settings;
use crate::types::{AtomicOperation, SendFlags, SendOpcode};
use crate::wire::{AtomicEth, Feth, HeaderSet, Headers, Ieth, ImmDt, Operation, Psn, Reth, XrcEth};

/// The packet to send for packet number `k` of a WQE.
pub(super) struct Request {
    pub(super) operation: Operation,
    /// PSNs of responses that answer this packet alone (READ, atomics, FLUSH, ATOMIC WRITE).
    pub(super) response_count: Option<u32>,
    pub(super) payload_offset: u64,
    pub(super) payload_bytes: usize,
    pub(super) ends_message: bool,
}

impl Request {
    pub(super) fn of(settings: &Settings, wqe: &SendWqe, k: u32, read_limit_packets: u32) -> Request {
        let mtu = settings.mtu_bytes;
        let offset = u64::from(k) * mtu as u64;
        if wqe.opcode.needs_response() {
            // A long READ is asked for in parts with fixed borders: a repeated part must lie inside
            // one that the responder knows.
            let part = read_limit_packets.max(1);
            let left = wqe.packet_count.saturating_sub(k).max(1);
            let count = left.min(part - k % part);
            let operation = match wqe.opcode {
                SendOpcode::RdmaRead => Operation::ReadRequest,
                SendOpcode::CompareSwap => Operation::CompareSwap,
                SendOpcode::FetchAdd => Operation::FetchAdd,
                SendOpcode::Flush => Operation::Flush,
                _ => Operation::AtomicWrite,
            };
            let payload_bytes = if operation == Operation::AtomicWrite { 8 } else { 0 };
            return Request {
                operation,
                response_count: Some(count),
                payload_offset: offset,
                payload_bytes,
                ends_message: k + count >= wqe.packet_count,
            };
        }
        let left = u64::from(wqe.length_bytes).saturating_sub(offset);
        let payload_bytes = left.min(mtu as u64) as usize;
        let first = k == 0;
        let last = k + 1 >= wqe.packet_count;
        Request {
            operation: message_operation(wqe.opcode, first, last),
            response_count: None,
            payload_offset: offset,
            payload_bytes,
            ends_message: last,
        }
    }

    pub(super) fn headers(&self, settings: &Settings, wqe: &SendWqe, psn: Psn) -> Headers {
        let mut bth = settings.bth(self.operation, psn);
        bth.pad_count = (self.payload_bytes.wrapping_neg() & 3) as u8;
        bth.solicited = self.ends_message && wqe.flags.contains(SendFlags::SOLICITED);
        let mut headers = Headers::new(bth);
        if settings.is_xrc() {
            headers.xrceth = Some(XrcEth { srqn: wqe.xrc_srqn });
        }
        let info = headers.bth.opcode.info();
        let has = |flag| info.is_some_and(|info| info.headers.contains(flag));
        if has(HeaderSet::RETH) {
            let length = match self.response_count {
                Some(count) if self.operation == Operation::ReadRequest => {
                    let left = u64::from(wqe.length_bytes).saturating_sub(self.payload_offset);
                    left.min(u64::from(count) * settings.mtu_bytes as u64) as u32
                }
                _ => match wqe.flush() {
                    Some(flush) if self.operation == Operation::Flush => flush.length,
                    _ => wqe.length_bytes,
                },
            };
            let offset = if self.operation == Operation::ReadRequest { self.payload_offset } else { 0 };
            headers.reth = Some(Reth {
                address: wqe.remote.address.wrapping_add(offset),
                rkey: wqe.remote.rkey,
                length,
            });
        }
        if has(HeaderSet::ATOMIC_ETH) {
            let (swap_or_add, compare) = match wqe.atomic() {
                Some(AtomicOperation::CompareSwap { compare, swap }) => (swap, compare),
                Some(AtomicOperation::FetchAdd { add }) => (add, 0),
                None => (0, 0),
            };
            headers.atomic_eth =
                Some(AtomicEth { address: wqe.remote.address, rkey: wqe.remote.rkey, swap_or_add, compare });
        }
        if has(HeaderSet::FETH) {
            headers.feth =
                wqe.flush().map(|flush| Feth { placement: flush.placement, selectivity: flush.selectivity });
        }
        if has(HeaderSet::IMM) {
            headers.imm = Some(ImmDt(wqe.imm_data));
        }
        if has(HeaderSet::IETH) {
            headers.ieth = Some(Ieth { rkey: wqe.invalidate_rkey });
        }
        headers
    }
}

/// Wire operation of one packet of a SEND or WRITE.
fn message_operation(opcode: SendOpcode, first: bool, last: bool) -> Operation {
    use Operation as Op;
    use SendOpcode as Wr;
    match (opcode, first, last) {
        (Wr::RdmaWrite, true, true) => Op::WriteOnly,
        (Wr::RdmaWriteWithImm, true, true) => Op::WriteOnlyImm,
        (Wr::RdmaWrite | Wr::RdmaWriteWithImm, true, false) => Op::WriteFirst,
        (Wr::RdmaWrite | Wr::RdmaWriteWithImm, false, false) => Op::WriteMiddle,
        (Wr::RdmaWrite, false, true) => Op::WriteLast,
        (Wr::RdmaWriteWithImm, false, true) => Op::WriteLastImm,
        (Wr::SendWithImm, true, true) => Op::SendOnlyImm,
        (Wr::SendWithInvalidate, true, true) => Op::SendOnlyInvalidate,
        (_, true, true) => Op::SendOnly,
        (_, true, false) => Op::SendFirst,
        (_, false, false) => Op::SendMiddle,
        (Wr::SendWithImm, false, true) => Op::SendLastImm,
        (Wr::SendWithInvalidate, false, true) => Op::SendLastInvalidate,
        (_, false, true) => Op::SendLast,
    }
}

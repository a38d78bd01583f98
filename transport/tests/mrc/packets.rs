//! Literal packets for and from one queue pair.

use pumice_transport::mrc::entropy::Entropy;
use pumice_transport::mrc::wire::{
    CcState, Meth, MrcBody, MrcBth, MrcHeaders, MrcOpcode, NackReason, Neth, PathMark, SackTrigger, Seth,
    WriteHeaders,
};
use pumice_transport::wire::{Aeth, ImmDt, Psn, Qpn, Reth};

use crate::device::KEY;
use crate::kit::{End, FIRST_PSN};

pub(crate) const MTU: u32 = 256;

pub(crate) fn psn(number: u32) -> Psn {
    Psn::new(FIRST_PSN).plus(number)
}

/// Packet `number` of the connection: packet `index` of a message of this length.
pub(crate) fn write(number: u32, index: u32, length: u32, imm: Option<u32>) -> (MrcHeaders, Vec<u8>) {
    let count = length.div_ceil(MTU).max(1);
    let is_last = index + 1 == count;
    let opcode = MrcOpcode::of_write(index == 0, is_last, imm.is_some());
    let address = 8192 + u64::from(index * MTU);
    let write = WriteHeaders {
        meth: Meth { rqmsn: 0, msn: number.wrapping_sub(index) as u16 },
        tseth: None,
        reth: Reth { address, rkey: KEY, length },
        imm: imm.filter(|_| is_last).map(|imm| ImmDt(imm.to_be_bytes())),
    };
    let bth = MrcBth::new(opcode, Qpn::new(0x12), psn(number));
    let bytes = if is_last { length - index * MTU } else { MTU };
    (MrcHeaders { bth, body: MrcBody::Write(write) }, vec![number as u8 + 1; bytes as usize])
}

pub(crate) fn take(end: &mut End, packet: (MrcHeaders, Vec<u8>)) -> Vec<MrcHeaders> {
    end.take(&packet.0, &packet.1);
    end.sent().into_iter().map(|(_, headers)| headers).collect()
}

pub(crate) fn sacks(packets: &[MrcHeaders]) -> Vec<(Seth, CcState)> {
    let sack = |headers: &MrcHeaders| match headers.body {
        MrcBody::Sack(seth, state) => Some((seth, state)),
        _ => None,
    };
    packets.iter().filter_map(sack).collect()
}

pub(crate) fn acks(packets: &[MrcHeaders]) -> Vec<(u32, u8, u32)> {
    let ack = |headers: &MrcHeaders| match headers.body {
        MrcBody::Acknowledge(aeth) => Some((headers.bth.psn.value(), aeth.syndrome, aeth.msn)),
        _ => None,
    };
    packets.iter().filter_map(ack).collect()
}

pub(crate) fn control(opcode: MrcOpcode, psn: Psn, body: MrcBody) -> MrcHeaders {
    MrcHeaders { bth: MrcBth::new(opcode, Qpn::new(0x12), psn), body }
}

pub(crate) fn sack(cack: u32, ack: u32, bitmap: u64, entropy: Entropy) -> MrcHeaders {
    let seth = Seth {
        mark: PathMark::None,
        trigger: SackTrigger::Packet { offset: (ack as i32 - cack as i32) as i16 },
        entropy,
        spdcid: 0,
        dpdcid: 0,
        cack_psn: psn(cack),
        cc_type: 0,
        cc_flags: 0,
        mpr: 0,
        sack_offset: 1,
        bitmap,
    };
    control(MrcOpcode::Sack, psn(cack), MrcBody::Sack(seth, CcState::default()))
}

pub(crate) fn nack(number: u32, reason: NackReason, entropy: Entropy) -> MrcHeaders {
    let neth = Neth {
        reason,
        vendor_info: 0,
        entropy,
        spdcid: 0,
        dpdcid: 0,
        nack_psn: psn(number),
        cc_flags: 0,
        timestamp: 0,
    };
    control(MrcOpcode::Nack, psn(number), MrcBody::Nack(neth))
}

pub(crate) fn ack(number: u32, syndrome: u8, msn: u32) -> MrcHeaders {
    control(MrcOpcode::Acknowledge, psn(number), MrcBody::Acknowledge(Aeth { syndrome, msn }))
}

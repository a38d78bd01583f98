//! Proofs about MRC headers: parsing and serializing are inverses, except for reserved bits.

use super::*;
use crate::mrc::entropy::Entropy;
use crate::proofs::{Values, check, check_all};
use crate::wire::{Aeth, ImmDt, Psn, Qpn, Reth};

/// Checks that serialized bytes equal the parsed ones, except for reserved bits.
fn comes_again<const LEN: usize>(bytes: [u8; LEN], defined: [u8; LEN], again: [u8; LEN]) {
    for index in 0..LEN {
        assert_eq!(again[index], bytes[index] & defined[index], "byte {index}");
    }
}

fn tseth(from: &mut Values) -> Tseth {
    Tseth { timestamp: from.u16(), has_own_unit: from.bool() }
}

fn seth(from: &mut Values) -> Seth {
    let trigger = match from.bool() {
        true => SackTrigger::Probe { probe_id: from.u16() },
        false => SackTrigger::Packet { offset: from.u16() as i16 },
    };
    Seth {
        mark: from.one_of(&[PathMark::None, PathMark::SkipOnce, PathMark::AlwaysSkip, PathMark::Reserved]),
        trigger,
        entropy: Entropy(from.u32()),
        spdcid: from.u16(),
        dpdcid: from.u16(),
        cack_psn: Psn::new(from.u24()),
        cc_type: from.up_to(15) as u8,
        cc_flags: from.up_to(15) as u8,
        mpr: from.u8(),
        sack_offset: from.u16() as i16,
        bitmap: from.u64(),
    }
}

fn cc_state(from: &mut Values) -> CcState {
    CcState {
        timestamp: from.u16(),
        ooo_count: from.up_to(0x7fff) as u16,
        restore_cwnd: from.bool(),
        rcv_cwnd_pen: from.up_to(0x7f) as u8,
        rcvd_bytes: from.u24(),
    }
}

fn body(from: &mut Values, opcode: MrcOpcode) -> MrcBody {
    match opcode.info().headers {
        MrcHeaderSet::Write | MrcHeaderSet::WriteImm => MrcBody::Write(WriteHeaders {
            meth: Meth { rqmsn: from.u16(), msn: from.u16() },
            tseth: if from.bool() { Some(tseth(from)) } else { None },
            reth: Reth { address: from.u64(), rkey: from.u32(), length: from.u32() },
            imm: if opcode.has_imm() { Some(ImmDt(from.bytes())) } else { None },
        }),
        MrcHeaderSet::Aeth => MrcBody::Acknowledge(Aeth { syndrome: from.u8(), msn: from.u24() }),
        MrcHeaderSet::Erth => MrcBody::EndpointRequest(Erth {
            operation: from.one_of(&[EndpointOperation::PortStatusUpdate, EndpointOperation::EvProbe]),
            vendor_info: from.u8(),
            port_status_mask: from.u32(),
            tseth: tseth(from),
        }),
        MrcHeaderSet::Eeth => {
            MrcBody::EndpointResponse(Eeth { operation_bits: from.up_to(3) as u8, timestamp: from.u16() })
        }
        MrcHeaderSet::Seth => MrcBody::Sack(seth(from), cc_state(from)),
        MrcHeaderSet::Neth => MrcBody::Nack(Neth {
            reason: NackReason::from_byte(from.u8()),
            vendor_info: from.u8(),
            entropy: Entropy(from.u32()),
            spdcid: from.u16(),
            dpdcid: from.u16(),
            nack_psn: Psn::new(from.u24()),
            cc_flags: from.up_to(15) as u8,
            timestamp: from.u16(),
        }),
        MrcHeaderSet::Peth => MrcBody::Probe(Peth {
            vendor_info: from.u8(),
            probe_id: from.u16(),
            spdcid: from.u16(),
            dpdcid: from.u16(),
            tseth: tseth(from),
        }),
    }
}

/// Checks that any packet is parsed from its bytes, and that a buffer which is one byte too short stays
/// unchanged.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(80))]
#[cfg_attr(not(kani), test)]
fn a_packet_comes_back_from_its_bytes() {
    check(|from| {
        let opcode = from.one_of(&MRC_OPCODES).opcode;
        let body = body(from, opcode);
        let has_timestamp = matches!(&body, MrcBody::Write(write) if write.tseth.is_some());
        let payload_bytes = if opcode.is_write() { from.up_to(5) as usize } else { 0 };
        let bth = MrcBth {
            solicited: from.bool(),
            pad_count: (payload_bytes.wrapping_neg() & 3) as u8,
            pkey: from.u16(),
            ack_request: from.bool(),
            retransmission: from.bool(),
            has_timestamp,
            ..MrcBth::new(opcode, Qpn::new(from.u24()), Psn::new(from.u24()))
        };
        let headers = MrcHeaders { bth, body };
        let length = headers.packet_len(payload_bytes);
        let mut out = [0xa5; 80];
        assert!(headers.emit(payload_bytes, &mut out[..length - 5]).is_none());
        assert!(out.iter().all(|byte| *byte == 0xa5));
        headers.emit(payload_bytes, &mut out[..length - 4]).unwrap().fill(0x5a);
        assert!(out[length - 4..].iter().all(|byte| *byte == 0xa5));
        let packet = MrcPacket::parse(&out[..length]).unwrap();
        assert_eq!((packet.headers, packet.payload.len()), (headers, payload_bytes));
        assert!(packet.payload.iter().all(|byte| *byte == 0x5a));
    });
}

/// Checks that the bytes of a BTH survive parsing, except for bit 6 of byte 1, byte 4 and the reserved bits
/// of byte 8.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn bytes_of_a_bth_come_again() {
    check(|from| {
        let mut bytes: [u8; MrcBth::LEN] = from.bytes();
        bytes[0] = from.one_of(&MRC_OPCODES).opcode.byte();
        let mut defined = [0xff; MrcBth::LEN];
        (defined[1], defined[4], defined[8]) = (0xbf, 0, 0xb0);
        comes_again(bytes, defined, MrcBth::parse(&bytes).unwrap().bytes());
    });
}

/// Checks that the bytes of SETH, PETH and CC_STATE survive parsing, except for reserved bits.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(30))]
#[cfg_attr(not(kani), test)]
fn bytes_of_control_headers_come_again() {
    check(|from| {
        let mut bytes: [u8; Seth::LEN] = from.bytes();
        (bytes[0], bytes[1]) = (0, bytes[1] & 0x7f);
        let mut defined = [0xff; Seth::LEN];
        (defined[1], defined[12]) = (0x62, 0);
        comes_again(bytes, defined, Seth::parse(&bytes).unwrap().bytes());
        let bytes = from.bytes();
        comes_again(
            bytes,
            [0xff; CcState::LEN].map(|byte| byte),
            CcState::parse(&bytes).map_or([0; 8], |state| {
                let mut again = state.bytes();
                again[2] |= bytes[2] & 0x80;
                again
            }),
        );
        let mut bytes: [u8; Peth::LEN] = from.bytes();
        (bytes[0], bytes[1], bytes[15]) = (0, 0, 1);
        let mut defined = [0xff; Peth::LEN];
        (defined[2], defined[6], defined[7], defined[14]) = (0, 0, 0, 0x80);
        comes_again(bytes, defined, Peth::parse(&bytes).unwrap().bytes());
    });
}

/// Checks that all control headers refuse another type or next header, in any of the first nine bits.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn other_types_of_headers_are_refused() {
    check_all(|from| {
        let bit = from.up_to(8) as usize;
        let mut bytes = [0; Eeth::LEN];
        bytes[bit / 8] = 0x80 >> (bit % 8);
        assert_eq!(Seth::parse(&bytes), Err(NextHeader::Unknown));
        assert_eq!(Neth::parse(&bytes), Err(NextHeader::Unknown));
        assert_eq!(Peth::parse(&bytes), Err(NextHeader::Unknown));
        assert_eq!(Erth::parse(&bytes), Err(NextHeader::Unknown));
        assert_eq!(Eeth::parse(&bytes), Err(NextHeader::Unknown));
    });
}

/// Checks that the PSNs of a SACK are the cumulative one plus a signed offset, modulo 2^24.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn offsets_of_a_sack_are_signed_and_wrap() {
    check(|from| {
        let seth = seth(from);
        assert_eq!(seth.bitmap_base().since(seth.cack_psn), i32::from(seth.sack_offset));
        if let SackTrigger::Packet { offset } = seth.trigger {
            assert_eq!(seth.ack_psn().unwrap().since(seth.cack_psn), i32::from(offset));
        }
    });
}

/// Checks that each of the 256 numbers is a reason of a NACK, and keeps its number.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn each_number_is_a_reason() {
    check_all(|from| {
        let byte = from.u8();
        assert_eq!(NackReason::from_byte(byte).byte(), byte);
    });
}

/// Checks that the time since an echoed time stamp is exact to a unit, over 8 ms.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn time_since_a_stamp_is_exact_to_a_unit() {
    check(|from| {
        let (sent_ns, passed_ns) = (from.up_to(1 << 60), from.up_to(8_388_000));
        let since = since_timestamp_ns(sent_ns + passed_ns, Tseth::at(sent_ns).timestamp);
        assert!(since.abs_diff(passed_ns) < TIMESTAMP_UNIT_NS);
    });
}

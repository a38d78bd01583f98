//! Proofs about whole packets: the checked view, written headers, and fields that are read before parsing.

use crate::proofs::{Values, check};
use crate::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, HeaderSet, Headers, ICRC_BYTES, Ieth, ImmDt, Opcode,
    OpcodeInfo, Packet, PayloadRule, Psn, Qpn, Reth, XrcEth, peek,
};

/// Largest payload in bytes here: enough for every pad count and for the rule of eight bytes.
const MAX_PAYLOAD: usize = 8;
/// Length in bytes of the longest headers (44), this payload, and the ICRC.
pub(crate) const MAX_BYTES: usize = 56;

/// Returns the properties of an arbitrary opcode; `None` if no packet has it.
fn known(from: &mut Values) -> Option<&'static OpcodeInfo> {
    Opcode::from_byte(from.u8()).info()
}

/// Returns arbitrary legal headers of an opcode.
fn headers_of(info: &OpcodeInfo, from: &mut Values) -> Headers {
    let (address, first, second) = (from.u64(), from.u64(), from.u64());
    let (number, key, byte) = (from.u24(), from.u32(), from.u8());
    let has = |header| info.headers.contains(header);
    let bth = Bth {
        solicited: from.bool(),
        migrated: from.bool(),
        pkey: from.u16(),
        becn: from.bool(),
        ack_request: from.bool(),
        ..Bth::new(info.opcode, Qpn::new(from.u24()), Psn::new(from.u24()))
    };
    Headers {
        bth,
        xrceth: has(HeaderSet::XRCETH).then_some(XrcEth { srqn: number }),
        deth: has(HeaderSet::DETH).then_some(Deth { qkey: key, source: Qpn::new(number) }),
        feth: has(HeaderSet::FETH).then_some(Feth { placement: byte & 0x0f, selectivity: byte >> 6 }),
        reth: has(HeaderSet::RETH).then_some(Reth { address, rkey: key, length: first as u32 }),
        atomic_eth: has(HeaderSet::ATOMIC_ETH).then_some(AtomicEth {
            address,
            rkey: key,
            swap_or_add: first,
            compare: second,
        }),
        aeth: has(HeaderSet::AETH).then_some(Aeth { syndrome: byte, msn: number }),
        atomic_ack_eth: has(HeaderSet::ATOMIC_ACK_ETH).then_some(AtomicAckEth { original: first }),
        imm: has(HeaderSet::IMM).then_some(ImmDt(second.to_le_bytes()[..4].try_into().unwrap_or_default())),
        ieth: has(HeaderSet::IETH).then_some(Ieth { rkey: key }),
    }
}

/// Returns a payload length that the rule of an opcode allows.
fn payload_bytes_of(rule: PayloadRule, from: &mut Values) -> usize {
    match rule {
        PayloadRule::None => 0,
        PayloadRule::Mtu | PayloadRule::Eight => MAX_PAYLOAD,
        PayloadRule::OneToMtu => from.between(1, MAX_PAYLOAD as u64) as usize,
        PayloadRule::ZeroToMtu => from.up_to(MAX_PAYLOAD as u64) as usize,
    }
}

/// Returns arbitrary bytes and a length, which is more often than by chance the one that their opcode needs.
pub(crate) fn bytes(from: &mut Values) -> ([u8; MAX_BYTES], usize) {
    let mut bytes = from.bytes();
    let length = from.up_to(MAX_BYTES as u64) as usize;
    if from.bool() {
        return (bytes, length);
    }
    bytes[1] &= 0xf0;
    match Opcode::from_byte(bytes[0]).info() {
        Some(info) => (bytes, info.header_bytes + from.up_to(2) as usize * 4 + ICRC_BYTES),
        None => (bytes, length & !3),
    }
}

/// A packet that was written is read again with its headers, payload and pad, and no byte behind it is
/// changed.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(58))]
#[cfg_attr(not(kani), test)]
fn a_packet_survives_the_wire() {
    check(|from| {
        let Some(info) = known(from) else { return };
        let headers = headers_of(info, from);
        let length = payload_bytes_of(info.payload, from);
        let payload: [u8; MAX_PAYLOAD] = from.bytes();
        let mut out = [0xee; MAX_BYTES];
        let written = headers.emit_packet(&payload[..length], &mut out);
        assert_eq!(headers.len(), info.header_bytes);
        assert_eq!(written, (info.header_bytes + length).next_multiple_of(4));
        assert!(out[written..].iter().all(|byte| *byte == 0xee));
        let packet = Packet::parse(&out[..written + ICRC_BYTES]);
        assert!(packet.is_ok());
        let Ok(packet) = packet else { return };
        let pad_count = (written - info.header_bytes - length) as u8;
        assert_eq!(packet.headers(), Headers { bth: Bth { pad_count, ..headers.bth }, ..headers });
        assert_eq!(packet.payload(), &payload[..length]);
        assert_eq!(packet.icrc(), 0xeeee_eeee);
    });
}

/// Headers are written completely or not at all.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(58))]
#[cfg_attr(not(kani), test)]
fn a_short_buffer_is_never_overrun() {
    check(|from| {
        let Some(info) = known(from) else { return };
        let headers = headers_of(info, from);
        let length = from.up_to(MAX_PAYLOAD as u64) as usize;
        let room = from.up_to(MAX_BYTES as u64) as usize;
        let needed = (headers.len() + length).next_multiple_of(4);
        let mut out = [0xee; MAX_BYTES];
        let written = headers.emit_packet(&[7; MAX_PAYLOAD][..length], &mut out[..room]);
        assert_eq!(written, if room < needed { 0 } else { needed });
        assert!(out[written..].iter().all(|byte| *byte == 0xee));
    });
}

/// No bytes make the parser panic, and the payload that it returns lies between the headers and the ICRC.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(58))]
#[cfg_attr(not(kani), test)]
fn the_payload_of_any_bytes_lies_inside_them() {
    check(|from| {
        let (bytes, length) = bytes(from);
        let bytes = &bytes[..length];
        let Ok(packet) = Packet::parse(bytes) else { return };
        let pad_count = usize::from(packet.bth().pad_count);
        let header_bytes = packet.info().header_bytes;
        assert_eq!(header_bytes + packet.payload().len() + pad_count + ICRC_BYTES, length);
        assert_eq!(packet.payload(), &bytes[header_bytes..][..packet.payload().len()]);
        assert_eq!((packet.bth().version, length % 4), (0, 0));
        match packet.info().payload {
            PayloadRule::None => assert!(packet.payload().is_empty()),
            PayloadRule::Eight => assert_eq!(packet.payload().len(), 8),
            PayloadRule::Mtu | PayloadRule::OneToMtu | PayloadRule::ZeroToMtu => {}
        }
        assert_eq!(packet.headers().len(), header_bytes);
    });
}

/// A packet that was read is written as a packet that reads the same.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(58))]
#[cfg_attr(not(kani), test)]
fn a_packet_that_was_read_can_be_written() {
    check(|from| {
        let (bytes, length) = bytes(from);
        let Ok(packet) = Packet::parse(&bytes[..length]) else { return };
        // A pad of more than three bytes, or a wrong count, is for the queue pair to refuse.
        if usize::from(packet.bth().pad_count) != packet.payload().len().wrapping_neg() & 3 {
            return;
        }
        let mut out = [0; MAX_BYTES];
        let written = packet.headers().emit_packet(packet.payload(), &mut out);
        assert_eq!(written + ICRC_BYTES, length);
        let again = Packet::parse(&out[..length]);
        assert!(again.is_ok());
        let Ok(again) = again else { return };
        assert_eq!((again.headers(), again.payload()), (packet.headers(), packet.payload()));
    });
}

/// Fields that are read before a packet is parsed have the values of the parsed packet.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(58))]
#[cfg_attr(not(kani), test)]
fn peeking_sees_what_parsing_sees() {
    check(|from| {
        let (bytes, length) = bytes(from);
        let bytes = &bytes[..length];
        let Ok(packet) = Packet::parse(bytes) else { return };
        let bth = packet.bth();
        assert_eq!(peek::opcode(bytes), Some(bth.opcode));
        assert_eq!(peek::destination(bytes), Some(bth.destination));
        assert_eq!(peek::process(bytes), Some(bth.destination.process()));
        assert_eq!(peek::psn(bytes), Some(bth.psn));
        assert_eq!(peek::source(bytes), packet.deth().map(|deth| deth.source));
        if let Some(xrceth) = packet.xrceth() {
            assert_eq!(peek::srqn(bytes), Some(xrceth.srqn));
        }
    });
}

/// No bytes make peeking panic, and a field is `None` if the bytes are too short for it.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(66))]
#[cfg_attr(not(kani), test)]
fn peeking_reads_nothing_behind_the_bytes() {
    check(|from| {
        let bytes: [u8; 64] = from.bytes();
        let bytes = &bytes[..from.up_to(64) as usize];
        let length = bytes.len();
        assert_eq!(peek::opcode(bytes).is_some(), length > peek::OPCODE_OFFSET);
        assert_eq!(peek::process(bytes).is_some(), length > peek::PROCESS_OFFSET);
        assert_eq!(peek::destination(bytes).is_some(), length >= peek::INDEX_OFFSET + 2);
        assert_eq!(peek::psn(bytes).is_some(), length >= Bth::LEN);
        assert!(peek::source(bytes).is_none() || length >= Bth::LEN + Deth::LEN);
        assert!(peek::srqn(bytes).is_none() || length >= Bth::LEN + XrcEth::LEN);
        assert_eq!(peek::attribute(bytes).is_some(), length >= peek::ATTRIBUTE_OFFSET + 2);
        assert_eq!(peek::service_id(bytes).is_some(), length >= peek::SERVICE_ID_OFFSET + 8);
    });
}

/// The relation "for the same SRQ" is symmetric, and two packets in it have one destination.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(22))]
#[cfg_attr(not(kani), test)]
fn being_for_the_same_srq_has_no_direction() {
    check(|from| {
        let one: [u8; 20] = from.bytes();
        let mut other = one;
        other[from.up_to(19) as usize] = from.u8();
        let same = peek::is_for_same_srq(&one, &other);
        assert_eq!(same, peek::is_for_same_srq(&other, &one));
        if same {
            assert_eq!(one[peek::PROCESS_OFFSET..8], other[peek::PROCESS_OFFSET..8]);
            assert_eq!(one[peek::SRQ_PROCESS_OFFSET..16], other[peek::SRQ_PROCESS_OFFSET..16]);
        }
    });
}

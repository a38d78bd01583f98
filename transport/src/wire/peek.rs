//! Single fields of packets that were not parsed, which route a packet before its form and ICRC are checked.
//!
//! Only this file contains the offsets of the fields. The offsets are public for the kernel's packet filter,
//! which takes numbers and cannot call a function. Each function returns `None` if the packet is too short
//! for the field, or has no such field.

use super::{Bth, Deth, Opcode, ProcessIndex, Psn, Qpn, XrcEth};

/// Offset of the opcode.
pub const OPCODE_OFFSET: usize = 0;
/// Offset of the process in the destination's number: the upper 8 of 24 bits.
pub const PROCESS_OFFSET: usize = 5;
/// Offset of the index in the destination's number: two bytes.
pub const INDEX_OFFSET: usize = PROCESS_OFFSET + 1;
/// Offset of the process in the number of the SRQ that an XRC request names.
pub const SRQ_PROCESS_OFFSET: usize = Bth::LEN + 1;
/// Offset of the MAD in a packet for queue pair 1, which follows BTH and DETH.
pub const MAD_OFFSET: usize = Bth::LEN + Deth::LEN;
/// Offset of the MAD's attribute: two bytes.
pub const ATTRIBUTE_OFFSET: usize = MAD_OFFSET + 16;
/// Offset of the first word behind the MAD's header: the sender's communication id, or in a SIDR_REP the
/// receiver's.
pub const FIRST_ID_OFFSET: usize = MAD_OFFSET + 24;
/// Offset of the second word: the receiver's communication id, except in requests and SIDR_REP.
pub const SECOND_ID_OFFSET: usize = FIRST_ID_OFFSET + 4;
/// Offset of the service id in a REQ or SIDR_REQ: eight bytes.
pub const SERVICE_ID_OFFSET: usize = FIRST_ID_OFFSET + 8;

/// Returns the opcode.
#[inline]
pub fn opcode(packet: &[u8]) -> Option<Opcode> {
    packet.get(OPCODE_OFFSET).copied().map(Opcode::from_byte)
}

/// Returns the destination's number.
#[inline]
pub fn destination(packet: &[u8]) -> Option<Qpn> {
    number_at(packet, PROCESS_OFFSET).map(Qpn::new)
}

/// Returns the process in the destination's number.
#[inline]
pub fn process(packet: &[u8]) -> Option<ProcessIndex> {
    packet.get(PROCESS_OFFSET).copied().map(ProcessIndex::new)
}

/// Returns the packet sequence number.
#[inline]
pub fn psn(packet: &[u8]) -> Option<Psn> {
    number_at(packet, Bth::LEN - 3).map(Psn::new)
}

/// Returns the number of the queue pair that sent a datagram.
#[inline]
pub fn source(packet: &[u8]) -> Option<Qpn> {
    if !opcode(packet)?.service().is_datagram() {
        return None;
    }
    packet.get(Bth::LEN..).and_then(Deth::parse).map(|deth| deth.source)
}

/// Returns the number of the SRQ that an XRC request names. An XRC response has none: its bytes there have
/// another meaning.
#[inline]
pub fn srqn(packet: &[u8]) -> Option<u32> {
    if !opcode(packet)?.service().names_srq() {
        return None;
    }
    packet.get(Bth::LEN..).and_then(XrcEth::parse).map(|xrceth| xrceth.srqn)
}

/// Reports whether two XRC requests have the same destination and name the same SRQ. The caller knows that
/// the first is an XRC request.
#[inline]
pub fn is_for_same_srq(one: &[u8], other: &[u8]) -> bool {
    srqn(other).is_some() && srqn(one) == srqn(other) && destination(one) == destination(other)
}

/// Returns the attribute of the MAD in a packet for queue pair 1.
#[inline]
pub fn attribute(packet: &[u8]) -> Option<u16> {
    packet.get(ATTRIBUTE_OFFSET..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// Returns the service id in a packet for queue pair 1 whose attribute is that of a REQ or SIDR_REQ.
#[inline]
pub fn service_id(packet: &[u8]) -> Option<u64> {
    packet.get(SERVICE_ID_OFFSET..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

fn number_at(packet: &[u8], offset: usize) -> Option<u32> {
    let &[high, middle, low] = packet.get(offset..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::mad::attribute as attributes;
    use crate::wire::{Headers, Operation, Packet, Service};

    const DESTINATION: Qpn = Qpn::new(0x12_3456);
    const PSN: Psn = Psn::new(0x65_4321);

    fn packet(service: Service, payload: &[u8]) -> Vec<u8> {
        let opcode = Opcode::new(service, Operation::SendOnly);
        let mut headers = Headers::new(Bth::new(opcode, DESTINATION, PSN));
        headers.deth = (service == Service::Ud).then_some(Deth { qkey: 1, source: Qpn::new(0x77_8899) });
        headers.xrceth = (service == Service::Xrc).then_some(XrcEth { srqn: 0xaa_bbcc });
        let mut out = alloc::vec![0; 512];
        let length = headers.emit_packet(payload, &mut out);
        out.truncate(length + super::super::ICRC_BYTES);
        out
    }

    #[test]
    fn every_field_is_that_of_the_parsed_packet() {
        for service in [Service::Rc, Service::Ud, Service::Xrc] {
            let bytes = packet(service, &[0; 256]);
            let parsed = Packet::parse(&bytes).unwrap();
            assert_eq!(opcode(&bytes), Some(parsed.bth().opcode));
            assert_eq!(destination(&bytes), Some(parsed.bth().destination));
            assert_eq!(process(&bytes), Some(parsed.bth().destination.process()));
            assert_eq!(psn(&bytes), Some(parsed.bth().psn));
            assert_eq!(source(&bytes), parsed.deth().map(|deth| deth.source));
            assert_eq!(srqn(&bytes), parsed.xrceth().map(|xrceth| xrceth.srqn));
        }
        assert_eq!(packet(Service::Xrc, &[])[SRQ_PROCESS_OFFSET], 0xaa);
    }

    #[test]
    fn the_fields_of_a_mad_are_found() {
        let mut mad = [0; 256];
        mad[16..18].copy_from_slice(&attributes::REQ.to_be_bytes());
        mad[24..28].copy_from_slice(&[1, 2, 3, 4]);
        mad[28..32].copy_from_slice(&[5, 6, 7, 8]);
        mad[32..40].copy_from_slice(&0x0102_0304_0506_0708_u64.to_be_bytes());
        let bytes = packet(Service::Ud, &mad);
        assert_eq!(attribute(&bytes), Some(attributes::REQ));
        assert_eq!(service_id(&bytes), Some(0x0102_0304_0506_0708));
        assert_eq!((bytes[FIRST_ID_OFFSET], bytes[SECOND_ID_OFFSET]), (1, 5));
        assert_eq!(bytes[MAD_OFFSET..MAD_OFFSET + 256], mad);
    }

    #[test]
    fn a_run_for_one_srq_has_one_destination_too() {
        let one = packet(Service::Xrc, &[]);
        for (byte, same) in
            [(4, true), (5, false), (7, false), (11, true), (12, true), (13, false), (15, false)]
        {
            let mut other = one.clone();
            other[byte] ^= 1;
            assert_eq!(is_for_same_srq(&one, &other), same, "byte {byte}");
        }
        assert!(!is_for_same_srq(&one, &packet(Service::Rc, &[0; 8])));
        assert!(!is_for_same_srq(&one, &one[..14]), "too short");
    }

    #[test]
    fn short_packets_have_no_fields() {
        assert_eq!((opcode(&[]), process(&[0; 5]), destination(&[0; 7])), (None, None, None));
        assert_eq!((psn(&[0; 11]), source(&[0x64; 19]), srqn(&[0xa4; 15])), (None, None, None));
        assert_eq!((attribute(&[0; 37]), service_id(&[0; 59])), (None, None));
    }
}

//! Base transport header and its opcodes, and the 40 bytes before the payload of every received datagram.

use core::net::IpAddr;

use etherparse::{Ipv4Header, Ipv6Header};

use super::encapsulation::{ip_header, udp_length};
use super::{Operation, Psn, Qpn, Service};

/// An opcode byte, known or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

impl Opcode {
    /// Creates the opcode of any byte; [`Opcode::info`] says whether it is a known one.
    #[inline]
    pub const fn from_byte(byte: u8) -> Opcode {
        Opcode(byte)
    }

    /// Returns the byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// Returns the opcode of an operation on a service. Not every combination exists: see [`Opcode::info`].
    #[inline]
    pub const fn new(service: Service, operation: Operation) -> Opcode {
        Opcode((service as u8) << 5 | (operation as u8 & 0x1f))
    }

    /// Returns the transport service in the upper three bits, also of unknown operations.
    #[inline]
    pub const fn service(self) -> Service {
        Service::of_number(self.0 >> 5)
    }
}

/// Base transport header. Reserved bits are read as if they were zero and written as zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Opcode of the packet.
    pub opcode: Opcode,
    /// Solicited event: the completion at the receiver notifies a consumer that armed its queue for solicited
    /// completions.
    pub solicited: bool,
    /// Path migration state; hardware sends 1, rdma_rxe 0, receivers without path migration ignore it.
    pub migrated: bool,
    /// Zero bytes between payload and ICRC, 0…3.
    pub pad_count: u8,
    /// Transport header version, 4 bits; only 0 exists.
    pub version: u8,
    /// Partition key; 0xffff is the default partition.
    pub pkey: u16,
    /// Forward congestion notification (RoCEv2 marks the IP header instead).
    pub fecn: bool,
    /// Backward congestion notification: set in a CNP.
    pub becn: bool,
    /// Queue pair that the packet is for.
    pub destination: Qpn,
    /// The responder must acknowledge this packet.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Creates a header with all flags off, P_Key 0xffff and version 0.
    #[inline]
    pub const fn new(opcode: Opcode, destination: Qpn, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            migrated: false,
            pad_count: 0,
            version: 0,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            destination,
            ack_request: false,
            psn,
        }
    }

    /// Reads the first 12 bytes; `None` if there are fewer.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Bth> {
        bytes.first_chunk().map(Bth::of)
    }

    /// Decodes the header in these bytes.
    #[inline(always)]
    pub(super) const fn of(bytes: &[u8; Bth::LEN]) -> Bth {
        let &[opcode, flags, pkey_high, pkey_low, congestion, d0, d1, d2, ack, p0, p1, p2] = bytes;
        Bth {
            opcode: Opcode::from_byte(opcode),
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad_count: (flags >> 4) & 3,
            version: flags & 0x0f,
            pkey: u16::from_be_bytes([pkey_high, pkey_low]),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            // Whole words are read: the number types drop their upper bytes.
            destination: Qpn::new(u32::from_be_bytes([congestion, d0, d1, d2])),
            ack_request: ack & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([ack, p0, p1, p2])),
        }
    }

    /// Writes 12 bytes at the start of `out`; writes nothing if `out` is shorter. Excess bits of
    /// `pad_count` and `version` are cut off.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ Bth::LEN }>() else { return };
        let ([first, second, third], []) = out.as_chunks_mut::<4>() else { return };
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.migrated) << 6
            | (self.pad_count & 3) << 4
            | (self.version & 0x0f);
        let congestion = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        //= statement:1
        //| The reserved bits of byte 8 are sent as zeros, and the ICRC covers them.
        let ack = u8::from(self.ack_request) << 7;
        // Words are written, because a number of three bytes takes nine instructions by itself.
        let head = u32::from(self.opcode.byte()) << 24 | u32::from(flags) << 16 | u32::from(self.pkey);
        *first = head.to_be_bytes();
        *second = (u32::from(congestion) << 24 | self.destination.value()).to_be_bytes();
        *third = (u32::from(ack) << 24 | self.psn.value()).to_be_bytes();
    }
}

/// Bytes of the GRH area in a datagram's receive buffer.
pub const GRH_BYTES: usize = 40;

/// Returns the GRH area for a datagram with these IP fields: the IPv6 header, or 20 zero bytes and the IPv4
/// header with identification 0, don't-fragment and a correct checksum (readers recognise IPv4 by that
/// checksum). `udp_payload_bytes` counts BTH to ICRC; `flow_label` is for IPv6 only.
pub fn grh(
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    udp_payload_bytes: usize,
) -> [u8; GRH_BYTES] {
    let header = ip_header(
        source,
        destination,
        traffic_class,
        hop_limit,
        flow_label,
        0,
        udp_length(udp_payload_bytes),
    );
    let mut area = [0; GRH_BYTES];
    let (_, v4) = area.split_at_mut(Ipv6Header::LEN - Ipv4Header::MIN_LEN);
    match header {
        //= statement:40
        //| The IPv4 header of a datagram stands in bytes 20 to 39 of the receive buffer.
        super::encapsulation::IpHeader::V4(bytes) => v4.copy_from_slice(&bytes),
        super::encapsulation::IpHeader::V6(bytes) => area = bytes,
    }
    area
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn every_byte_prints_and_has_a_service() {
        assert_eq!(Opcode::from_byte(0x00).to_string(), "RC_SEND_FIRST");
        assert_eq!(Opcode::from_byte(0xab).to_string(), "XRC_RDMA_WRITE_ONLY_IMM");
        assert_eq!(Opcode::from_byte(0x81).to_string(), "CNP");
        assert_eq!(Opcode::from_byte(0x15).to_string(), "opcode 0x15");
        let services = [
            Service::Rc,
            Service::Uc,
            Service::Rd,
            Service::Ud,
            Service::Cnp,
            Service::Xrc,
            Service::Reserved,
            Service::Reserved,
        ];
        for byte in 0..=255u8 {
            assert_eq!(Opcode::from_byte(byte).service(), services[byte as usize / 32]);
        }
        assert_eq!(Opcode::new(Service::Cnp, Operation::Cnp).byte(), 0x81);
        assert_eq!(Opcode::new(Service::Xrc, Operation::SendOnlyInvalidate).byte(), 0xb7);
    }

    #[test]
    fn golden_bytes() {
        let bytes = [0x04, 0xf0, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0x00, 0xab, 0xcd];
        let bth = Bth::parse(&bytes).unwrap();
        let expected = Bth {
            solicited: true,
            migrated: true,
            pad_count: 3,
            ack_request: true,
            ..Bth::new(Opcode::from_byte(4), Qpn::new(0x11), Psn::new(0xabcd))
        };
        assert_eq!(bth, expected);
        let mut out = [0xee; 13];
        bth.emit(&mut out);
        assert_eq!(out[..12], bytes);
        assert_eq!(out[12], 0xee, "nothing beyond the header is touched");
    }

    #[test]
    fn each_single_bit_has_its_field() {
        let zero = Bth { pkey: 0, ..Bth::new(Opcode::from_byte(0), Qpn::new(0), Psn::new(0)) };
        let cases = [
            (8, Bth { solicited: true, ..zero }),
            (9, Bth { migrated: true, ..zero }),
            (10, Bth { pad_count: 2, ..zero }),
            (12, Bth { version: 8, ..zero }),
            (16, Bth { pkey: 0x8000, ..zero }),
            (32, Bth { fecn: true, ..zero }),
            (33, Bth { becn: true, ..zero }),
            (40, Bth { destination: Qpn::new(0x80_0000), ..zero }),
            (63, Bth { destination: Qpn::new(1), ..zero }),
            (64, Bth { ack_request: true, ..zero }),
            (72, Bth { psn: Psn::new(0x80_0000), ..zero }),
            (95, Bth { psn: Psn::new(1), ..zero }),
        ];
        for (bit, expected) in cases {
            let mut bytes = [0u8; 12];
            bytes[bit / 8] = 0x80 >> (bit % 8);
            assert_eq!(Bth::parse(&bytes), Some(expected), "bit {bit}");
            let mut out = [0xff; 12];
            expected.emit(&mut out);
            assert_eq!(out, bytes, "bit {bit}");
        }
    }

    #[test]
    fn short_buffers_are_refused_and_left_alone() {
        assert_eq!(Bth::parse(&[0; 11]), None);
        let mut out = [7; 11];
        Bth::new(Opcode::from_byte(4), Qpn::GSI, Psn::new(1)).emit(&mut out);
        assert_eq!(out, [7; 11]);
    }

    #[test]
    fn ipv4_header_is_at_byte_20_with_a_right_checksum() {
        let area = grh(
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
            0,
            64,
            0xf_ffff,
            280,
        );
        assert_eq!(area[..20], [0; 20]);
        // This is the IP header of a 308-byte datagram between these addresses (a MAD on QP1).
        let expected = [
            0x45, 0x00, 0x01, 0x34, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb5, 0xb5, 192, 0, 2, 1, 192, 0, 2,
            2,
        ];
        assert_eq!(area[20..], expected);
    }

    #[test]
    fn ipv6_header_fills_the_area() {
        let area = grh(
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
            0x68,
            32,
            0x1_2345,
            20,
        );
        assert_eq!(area[..8], [0x66, 0x81, 0x23, 0x45, 0x00, 0x1c, 0x11, 0x20]);
        assert_eq!(area[8..12], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!((area[23], area[39]), (1, 2));
    }
}

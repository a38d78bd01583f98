//! Wire formats of RoCEv2: every header as a checked view and a plain value.
//!
//! [`Packet`] is a checked view of one UDP payload (BTH … ICRC); [`Headers`] is the value of all its headers
//! and writes them again: `parse` and `emit` are inverses on legal packets. [`icrc`] seals and verifies,
//! [`encapsulation`] adds and removes the layers below UDP (for captures, the simulated fabric and the GRH
//! area of datagrams). A UDP socket needs none of the latter.
//!
//! Header layouts, the opcode table and the invariant CRC are those of the IBTA specification with
//! its RoCEv2 annex; FLUSH and ATOMIC WRITE as in its memory placement extensions.
//!
//! A received packet: a checked view of one UDP payload.

use core::fmt;

/// A checked view of a packet, BTH to ICRC. All checks that do not need the path MTU have been made, except
/// that of the ICRC (see [`self::icrc`]).
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// The BTH. Its fields are read where they are used: no step uses all of them.
    head: &'a [u8; Bth::LEN],
    info: &'static OpcodeInfo,
    payload: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Length in bytes of the shortest legal UDP payload: BTH and ICRC.
    pub const MIN_BYTES: usize = Bth::LEN + ICRC_BYTES;

    /// Checks a UDP payload and returns the view of it.
    ///
    /// # Errors
    /// Fails if the packet has to be dropped without an answer; the error says why.
    #[inline]
    pub fn parse(udp_payload: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        if udp_payload.len() < Packet::MIN_BYTES {
            return Err(PacketError::TooShort);
        }
        let head = udp_payload.first_chunk().ok_or(PacketError::TooShort)?;
        let bth = Bth::of(head);
        //= statement:8
        //| A packet with a transport version other than 0 gets no answer.
        if bth.version != 0 {
            return Err(PacketError::BadVersion);
        }
        let info = bth.opcode.info().ok_or(PacketError::UnknownOpcode)?;
        let body_bytes =
            //= linux:rxe_recv.c#rxe_rcv
            //| A packet that is shorter than the headers of its opcode is dropped.
            udp_payload.len().checked_sub(info.header_bytes + ICRC_BYTES).ok_or(PacketError::TooShort)?;
        if body_bytes % 4 != 0 {
            return Err(PacketError::BadLength);
        }
        //= statement:7
        //| The pad bytes do not count as payload, and their values mean nothing.
        let payload_bytes = body_bytes.checked_sub(usize::from(bth.pad_count)).ok_or(PacketError::BadPad)?;
        let legal = match info.payload {
            PayloadRule::None => body_bytes == 0,
            PayloadRule::Eight => payload_bytes == 8,
            PayloadRule::Mtu | PayloadRule::OneToMtu | PayloadRule::ZeroToMtu => true,
        };
        if !legal {
            return Err(PacketError::BadLength);
        }
        let payload = udp_payload
            .get(info.header_bytes..info.header_bytes + payload_bytes)
            .ok_or(PacketError::TooShort)?;
        Ok(Packet { head, info, payload, bytes: udp_payload })
    }

    /// Returns the base transport header.
    #[inline(always)]
    pub const fn bth(&self) -> Bth {
        Bth::of(self.head)
    }

    /// Returns the properties of the opcode.
    #[inline]
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// Returns the operation.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.info.operation
    }

    /// Returns the payload without pad.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the whole UDP payload, BTH to ICRC.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes from `header` on, if the opcode has it.
    #[inline]
    fn at(&self, header: HeaderSet) -> Option<&'a [u8]> {
        self.bytes.get(self.info.headers.offset_of(header)?..)
    }

    /// Returns the shared receive queue of XRC requests.
    #[inline]
    pub fn xrceth(&self) -> Option<XrcEth> {
        self.at(HeaderSet::XRCETH).and_then(XrcEth::parse)
    }

    /// Returns Q_Key and source of datagrams.
    #[inline]
    pub fn deth(&self) -> Option<Deth> {
        self.at(HeaderSet::DETH).and_then(Deth::parse)
    }

    /// Returns placement and selectivity of a FLUSH.
    #[inline]
    pub fn feth(&self) -> Option<Feth> {
        self.at(HeaderSet::FETH).and_then(Feth::parse)
    }

    /// Returns the remote range, in the packets that name one.
    #[inline]
    pub fn reth(&self) -> Option<Reth> {
        self.at(HeaderSet::RETH).and_then(Reth::parse)
    }

    /// Returns target and operands of atomic requests.
    #[inline]
    pub fn atomic_eth(&self) -> Option<AtomicEth> {
        self.at(HeaderSet::ATOMIC_ETH).and_then(AtomicEth::parse)
    }

    /// Returns syndrome and MSN, in answers except READ middles.
    #[inline]
    pub fn aeth(&self) -> Option<Aeth> {
        self.at(HeaderSet::AETH).and_then(Aeth::parse)
    }

    /// Returns the original value of atomic answers.
    #[inline]
    pub fn atomic_ack_eth(&self) -> Option<AtomicAckEth> {
        self.at(HeaderSet::ATOMIC_ACK_ETH).and_then(AtomicAckEth::parse)
    }

    /// Returns the immediate data.
    #[inline]
    pub fn imm(&self) -> Option<ImmDt> {
        self.at(HeaderSet::IMM).and_then(ImmDt::parse)
    }

    /// Returns the key to invalidate.
    #[inline]
    pub fn ieth(&self) -> Option<Ieth> {
        self.at(HeaderSet::IETH).and_then(Ieth::parse)
    }

    /// Returns all headers as a value: emitting it with [`Packet::payload`] writes the packet again, except
    /// that reserved bits and pad bytes become zero.
    #[inline]
    pub fn headers(&self) -> Headers {
        Headers {
            bth: self.bth(),
            xrceth: self.xrceth(),
            deth: self.deth(),
            feth: self.feth(),
            reth: self.reth(),
            atomic_eth: self.atomic_eth(),
            aeth: self.aeth(),
            atomic_ack_eth: self.atomic_ack_eth(),
            imm: self.imm(),
            ieth: self.ieth(),
        }
    }

    /// Returns the invariant CRC that the packet carries.
    #[inline]
    pub fn icrc(&self) -> u32 {
        self.bytes.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// Reason why bytes are not a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketError {
    /// The payload is shorter than the headers of its opcode and the ICRC.
    TooShort,
    /// The transport header version is not 0.
    BadVersion,
    /// No RoCE packet has this opcode.
    UnknownOpcode,
    /// The pad is longer than the payload.
    BadPad,
    /// The length is not a multiple of four, or the payload has a length that the opcode does not allow.
    BadLength,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PacketError::TooShort => "packet is shorter than the headers of its opcode and the ICRC",
            PacketError::BadVersion => "transport header version is not 0",
            PacketError::UnknownOpcode => "opcode is unknown or not of RoCE",
            PacketError::BadPad => "pad count is larger than the payload",
            PacketError::BadLength => "payload length is not one that the opcode allows",
        })
    }
}

impl core::error::Error for PacketError {}

mod bth;
pub mod encapsulation;
mod extended_headers;
mod frame;
mod header_set;
mod headers;
pub mod icrc;
mod opcode_table;
mod operation;
pub mod peek;

mod qpn;
mod service;
pub mod source_port;
mod syndrome;

pub use bth::{Bth, GRH_BYTES, Opcode, grh};
pub use encapsulation::{Datagram, EncapsulationError, LinkType, decapsulate, encapsulate};
pub use extended_headers::{Aeth, AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};
pub use frame::{FRAME_HEADER_BYTES, FrameFields};
pub use header_set::HeaderSet;
pub(crate) use header_set::{CnpReserved, Extensions};
pub use headers::Headers;
pub use icrc::{ICRC_BYTES, IcrcVerdict};
pub use opcode_table::{OPCODES, OpcodeInfo, PayloadRule};
pub use operation::{Operation, OperationClass, Packets, Position};

pub use qpn::{ProcessIndex, Psn, Qpn};
pub use service::{SERVICES, Service, ServiceRow};
pub use syndrome::{NakCode, Syndrome, credits, rnr_timer_ns, transport_timer_ns};

#[cfg(any(test, kani))]
pub(crate) mod proofs;

#[cfg(test)]
mod properties;

#[cfg(test)]
mod vectors;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::wire::icrc::{self, IcrcVerdict};
    use crate::wire::{Opcode, Psn, Qpn, Service, vectors};

    fn bytes_of(opcode: u8, flags: u8, length_bytes: usize) -> Vec<u8> {
        let mut bytes = alloc::vec![0; length_bytes];
        bytes[..2].copy_from_slice(&[opcode, flags]);
        bytes
    }

    #[test]
    fn headers_of_the_vectors() {
        let vectors = vectors::all();
        let parse = |index: usize| Packet::parse(vectors[index].packet()).unwrap();

        let send = parse(0);
        assert_eq!((send.operation(), send.payload()), (Operation::SendOnly, &b"hello"[..]));
        assert_eq!(send.icrc(), 0x05a7_bea3);

        let write = parse(1);
        assert_eq!(write.info().name, "RC_RDMA_WRITE_ONLY");
        assert_eq!(write.bth().destination, Qpn::new(0x12_3456));
        assert_eq!(write.bth().psn, Psn::new(0xff_fffe));
        assert_eq!(write.reth(), Some(Reth { address: 0x7f00_1122_3344, rkey: 0xdead_beef, length: 16 }));
        assert_eq!(write.payload(), (0..16).collect::<Vec<u8>>());

        let ack = parse(2);
        assert_eq!(ack.aeth(), Some(Aeth { syndrome: 0x1f, msn: 1 }));
        assert_eq!((ack.payload().len(), ack.imm(), ack.reth()), (0, None, None));

        let mad = parse(3);
        assert_eq!(mad.deth(), Some(Deth { qkey: 0x8001_0000, source: Qpn::GSI }));
        assert_eq!(mad.payload(), [0; 256]);

        for cnp in [parse(4), parse(7)] {
            assert_eq!((cnp.operation(), cnp.info().service), (Operation::Cnp, Service::Cnp));
            assert!(cnp.bth().becn);
            assert!(cnp.payload().is_empty());
        }
        for uc in [parse(5), parse(6)] {
            assert_eq!((uc.info().name, uc.bth().pad_count), ("UC_SEND_ONLY", 2));
            assert_eq!(uc.payload().len(), 18);
        }
    }

    #[test]
    fn the_vectors_are_written_again_byte_for_byte() {
        for vector in vectors::all() {
            let packet = Packet::parse(vector.packet()).unwrap();
            let body = &packet.bytes()[..packet.bytes().len() - ICRC_BYTES];
            let mut out = [0xee; 512];
            let written = packet.headers().emit_packet(packet.payload(), &mut out);
            assert_eq!(&out[..written], body, "{}", vector.name);
            assert_eq!(packet.headers().len(), packet.info().header_bytes, "{}", vector.name);
            assert!(out[written..].iter().all(|&byte| byte == 0xee));
        }
    }

    #[test]
    fn statement_07_five_bytes_have_three_bytes_of_pad_of_any_value() {
        let headers = Headers::new(Bth::new(Opcode::from_byte(0x04), Qpn::new(0x11), Psn::new(1)));
        let mut out = [0xee; 24];
        assert_eq!(headers.emit_packet(b"hello", &mut out), 20);
        assert_eq!(out[1], 0x30, "pad count 3");
        assert_eq!(out[12..20], *b"hello\0\0\0");
        let flow = vectors::all()[0].flow();
        icrc::seal(&flow, 0, &mut out);
        assert_eq!(Packet::parse(&out).unwrap().payload(), b"hello");

        out[18] = 0x99;
        icrc::seal(&flow, 0, &mut out);
        assert_eq!(icrc::verify(&flow, 0, &out), IcrcVerdict::Exact);
        assert_eq!(Packet::parse(&out).unwrap().payload(), b"hello", "a pad byte other than zero");
    }

    #[test]
    fn each_check_has_its_error() {
        let cases = [
            (bytes_of(0x04, 0, 15), PacketError::TooShort),
            (bytes_of(0x04, 0x01, 16), PacketError::BadVersion),
            (bytes_of(0x15, 0, 16), PacketError::UnknownOpcode),
            (bytes_of(0x44, 0, 64), PacketError::UnknownOpcode), // reliable datagram
            (bytes_of(0x0a, 0, 28), PacketError::TooShort),      // no room for the RETH
            (bytes_of(0x81, 0, 16), PacketError::TooShort),      // no room for the reserved bytes
            (bytes_of(0x04, 0, 17), PacketError::BadLength),
            (bytes_of(0x04, 0x10, 16), PacketError::BadPad),
            (bytes_of(0x11, 0, 24), PacketError::BadLength), // ACK with payload
            (bytes_of(0x11, 0x30, 24), PacketError::BadLength),
            (bytes_of(0x1d, 0, 32), PacketError::BadLength), // ATOMIC WRITE of nothing
            (bytes_of(0x1d, 0x10, 40), PacketError::BadLength),
            (bytes_of(0x1d, 0x10, 44), PacketError::BadLength),
        ];
        for (bytes, error) in cases {
            assert_eq!(Packet::parse(&bytes).err(), Some(error), "{bytes:02x?}");
        }
        for legal in [bytes_of(0x04, 0, 16), bytes_of(0x1d, 0, 40), bytes_of(0x1c, 0, 36)] {
            assert!(Packet::parse(&legal).is_ok(), "{legal:02x?}");
        }
    }
}

//! The base transport header of MRC.

use super::MrcOpcode;
use crate::wire::{Psn, Qpn};

/// The base transport header of an MRC packet. Byte 4 is reserved, and the ICRC treats it as ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcBth {
    /// Opcode of the packet.
    pub opcode: MrcOpcode,
    /// Solicited event: bit 7 of byte 1, as in IBTA. Bit 6 is sent as 0 and ignored on receipt.
    pub solicited: bool,
    /// Number of zero bytes between payload and ICRC, 0…3.
    pub pad_count: u8,
    /// Transport header version, 4 bits; only 0 exists.
    pub version: u8,
    /// Partition key.
    pub pkey: u16,
    /// Number of the queue pair that the packet is for.
    pub destination: Qpn,
    /// `a`: the responder is asked to send a SACK.
    pub ack_request: bool,
    /// `rtx`: the packet is a retransmission, or the SACK that one caused.
    pub retransmission: bool,
    /// `ts`: a TSETH follows.
    pub has_timestamp: bool,
    /// Packet sequence number. In endpoint packets, it is the number of the request.
    pub psn: Psn,
}

impl MrcBth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 12;

    /// Creates a header with all flags off and the default partition key.
    pub const fn new(opcode: MrcOpcode, destination: Qpn, psn: Psn) -> MrcBth {
        MrcBth {
            opcode,
            solicited: false,
            pad_count: 0,
            version: 0,
            pkey: 0xffff,
            destination,
            ack_request: false,
            retransmission: false,
            has_timestamp: false,
            psn,
        }
    }

    /// Parses the first 12 bytes; `None` if there are fewer, or if the opcode is none of MRC.
    pub fn parse(bytes: &[u8]) -> Option<MrcBth> {
        let &[opcode, flags, pkey_high, pkey_low, _, d0, d1, d2, marks, p0, p1, p2] = bytes.first_chunk()?;
        Some(MrcBth {
            opcode: MrcOpcode::from_byte(opcode)?,
            solicited: flags & 0x80 != 0,
            pad_count: (flags >> 4) & 3,
            version: flags & 0x0f,
            pkey: u16::from_be_bytes([pkey_high, pkey_low]),
            destination: Qpn::new(u32::from_be_bytes([0, d0, d1, d2])),
            ack_request: marks & 0x80 != 0,
            retransmission: marks & 0x20 != 0,
            has_timestamp: marks & 0x10 != 0,
            psn: Psn::new(u32::from_be_bytes([0, p0, p1, p2])),
        })
    }

    /// Returns the 12 bytes of the header. Excess bits of `pad_count` and `version` are cut off.
    pub fn bytes(&self) -> [u8; MrcBth::LEN] {
        let [pkey_high, pkey_low] = self.pkey.to_be_bytes();
        let [_, d0, d1, d2] = self.destination.value().to_be_bytes();
        let [_, p0, p1, p2] = self.psn.value().to_be_bytes();
        let flags = u8::from(self.solicited) << 7 | (self.pad_count & 3) << 4 | (self.version & 0x0f);
        let marks = u8::from(self.ack_request) << 7
            | u8::from(self.retransmission) << 5
            | u8::from(self.has_timestamp) << 4;
        [self.opcode.byte(), flags, pkey_high, pkey_low, 0, d0, d1, d2, marks, p0, p1, p2]
    }
}

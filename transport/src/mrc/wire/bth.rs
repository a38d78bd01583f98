//! The base transport header of MRC, and its opcodes, a separate space with 110 in the top three bits.

use crate::wire::{Psn, Qpn};

/// An opcode of MRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MrcOpcode {
    /// First packet of a WRITE.
    WriteFirst = 0xc6,
    /// Packet in the middle of a WRITE.
    WriteMiddle = 0xc7,
    /// Last packet of a WRITE.
    WriteLast = 0xc8,
    /// Last packet of a WRITE with immediate.
    WriteLastImm = 0xc9,
    /// The single packet of a WRITE.
    WriteOnly = 0xca,
    /// The single packet of a WRITE with immediate.
    WriteOnlyImm = 0xcb,
    /// Transport ACK or NAK, which acknowledges or refuses messages.
    Acknowledge = 0xd1,
    /// EV probe or port status update.
    EndpointRequest = 0xd8,
    /// Answer to an endpoint request.
    EndpointResponse = 0xd9,
    /// Reliability SACK, which reports packets that have arrived.
    Sack = 0xdc,
    /// Reliability NACK, which refuses one packet.
    Nack = 0xdd,
    /// Reliability probe.
    ProbeRequest = 0xde,
}

/// The headers that follow the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MrcHeaderSet {
    /// METH, TSETH if the BTH announces it, RETH, payload.
    Write,
    /// METH, TSETH if the BTH announces it, RETH, ImmDt, payload.
    WriteImm,
    /// AETH.
    Aeth,
    /// ERTH.
    Erth,
    /// EETH.
    Eeth,
    /// SETH and CC_STATE.
    Seth,
    /// NETH.
    Neth,
    /// PETH.
    Peth,
}

/// The properties of an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrcOpcodeInfo {
    /// The opcode.
    pub opcode: MrcOpcode,
    /// Human-readable name.
    pub name: &'static str,
    /// Headers that follow the BTH.
    pub headers: MrcHeaderSet,
    /// True if the packet begins a message.
    pub is_first: bool,
    /// True if the packet ends a message.
    pub is_last: bool,
}

const fn row(
    opcode: MrcOpcode,
    name: &'static str,
    headers: MrcHeaderSet,
    is_first: bool,
    is_last: bool,
) -> MrcOpcodeInfo {
    MrcOpcodeInfo { opcode, name, headers, is_first, is_last }
}

/// All opcodes of MRC 1.0, in ascending order.
pub const MRC_OPCODES: [MrcOpcodeInfo; 12] = [
    row(MrcOpcode::WriteFirst, "MRC WRITE First", MrcHeaderSet::Write, true, false),
    row(MrcOpcode::WriteMiddle, "MRC WRITE Middle", MrcHeaderSet::Write, false, false),
    row(MrcOpcode::WriteLast, "MRC WRITE Last", MrcHeaderSet::Write, false, true),
    row(MrcOpcode::WriteLastImm, "MRC WRITE Last with immediate", MrcHeaderSet::WriteImm, false, true),
    row(MrcOpcode::WriteOnly, "MRC WRITE Only", MrcHeaderSet::Write, true, true),
    row(MrcOpcode::WriteOnlyImm, "MRC WRITE Only with immediate", MrcHeaderSet::WriteImm, true, true),
    row(MrcOpcode::Acknowledge, "MRC Acknowledge", MrcHeaderSet::Aeth, false, false),
    row(MrcOpcode::EndpointRequest, "MRC Endpoint Request", MrcHeaderSet::Erth, false, false),
    row(MrcOpcode::EndpointResponse, "MRC Endpoint Response", MrcHeaderSet::Eeth, false, false),
    row(MrcOpcode::Sack, "MRC Reliability SACK", MrcHeaderSet::Seth, false, false),
    row(MrcOpcode::Nack, "MRC Reliability NACK", MrcHeaderSet::Neth, false, false),
    row(MrcOpcode::ProbeRequest, "MRC Reliability Probe Request", MrcHeaderSet::Peth, false, false),
];

impl MrcOpcode {
    /// Reports whether the first byte of a UDP payload marks an MRC packet, with a known or unknown opcode.
    pub const fn is_mrc(byte: u8) -> bool {
        byte >> 5 == 0b110
    }

    /// Returns the opcode with this number.
    pub const fn from_byte(byte: u8) -> Option<MrcOpcode> {
        Some(match byte {
            0xc6 => MrcOpcode::WriteFirst,
            0xc7 => MrcOpcode::WriteMiddle,
            0xc8 => MrcOpcode::WriteLast,
            0xc9 => MrcOpcode::WriteLastImm,
            0xca => MrcOpcode::WriteOnly,
            0xcb => MrcOpcode::WriteOnlyImm,
            0xd1 => MrcOpcode::Acknowledge,
            0xd8 => MrcOpcode::EndpointRequest,
            0xd9 => MrcOpcode::EndpointResponse,
            0xdc => MrcOpcode::Sack,
            0xdd => MrcOpcode::Nack,
            0xde => MrcOpcode::ProbeRequest,
            _ => return None,
        })
    }

    /// Returns the number of the opcode.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Returns the opcode's row in [`MRC_OPCODES`].
    pub const fn info(self) -> &'static MrcOpcodeInfo {
        let [first, middle, last, last_imm, only, only_imm, ack, request, response, sack, nack, probe] =
            &MRC_OPCODES;
        match self {
            MrcOpcode::WriteFirst => first,
            MrcOpcode::WriteMiddle => middle,
            MrcOpcode::WriteLast => last,
            MrcOpcode::WriteLastImm => last_imm,
            MrcOpcode::WriteOnly => only,
            MrcOpcode::WriteOnlyImm => only_imm,
            MrcOpcode::Acknowledge => ack,
            MrcOpcode::EndpointRequest => request,
            MrcOpcode::EndpointResponse => response,
            MrcOpcode::Sack => sack,
            MrcOpcode::Nack => nack,
            MrcOpcode::ProbeRequest => probe,
        }
    }

    /// Reports whether the packet carries data to the peer's memory.
    pub const fn is_write(self) -> bool {
        matches!(self.info().headers, MrcHeaderSet::Write | MrcHeaderSet::WriteImm)
    }

    /// Reports whether the packet carries immediate data.
    pub const fn has_imm(self) -> bool {
        matches!(self.info().headers, MrcHeaderSet::WriteImm)
    }

    /// Returns the opcode of a packet of a WRITE.
    pub const fn of_write(is_first: bool, is_last: bool, has_imm: bool) -> MrcOpcode {
        match (is_first, is_last, has_imm) {
            (true, false, _) => MrcOpcode::WriteFirst,
            (false, false, _) => MrcOpcode::WriteMiddle,
            (false, true, false) => MrcOpcode::WriteLast,
            (false, true, true) => MrcOpcode::WriteLastImm,
            (true, true, false) => MrcOpcode::WriteOnly,
            (true, true, true) => MrcOpcode::WriteOnlyImm,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_one_row_or_none() {
        let mut rows = MRC_OPCODES.iter();
        for byte in 0..=u8::MAX {
            let Some(opcode) = MrcOpcode::from_byte(byte) else { continue };
            assert!(MrcOpcode::is_mrc(byte));
            let info = rows.next().unwrap();
            assert_eq!((opcode.byte(), opcode.info(), info.opcode), (byte, info, opcode));
            if opcode.is_write() {
                let again = MrcOpcode::of_write(info.is_first, info.is_last, opcode.has_imm());
                assert_eq!(again, opcode);
            }
        }
        assert_eq!(rows.next(), None);
    }
}

//! Base transport header: 12 bytes in front of every packet.

use super::{Opcode, Psn, Qpn};

/// BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// SE: the receive completion is solicited.
    pub solicited: bool,
    /// M: the sender's path migration state is "migrated".
    pub migrated: bool,
    /// Pad bytes after the payload, 0…3.
    pub pad_count: u8,
    /// Transport version: 0.
    pub version: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination queue pair.
    pub destination: Qpn,
    /// A: the responder must answer.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads the first 12 bytes; `None` if there are fewer. Reserved bits are ignored.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Bth> {
        let b: &[u8; 12] = bytes.first_chunk()?;
        Some(Bth {
            opcode: Opcode::from_byte(b[0]),
            solicited: b[1] & 0x80 != 0,
            migrated: b[1] & 0x40 != 0,
            pad_count: b[1] >> 4 & 3,
            version: b[1] & 0x0f,
            pkey: u16::from_be_bytes([b[2], b[3]]),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            destination: Qpn::new(u32::from_be_bytes([0, b[5], b[6], b[7]])),
            ack_request: b[8] & 0x80 != 0,
            psn: Psn::new(u32::from_be_bytes([0, b[9], b[10], b[11]])),
        })
    }

    /// Writes 12 bytes to the front of `out`; writes nothing if there is no room.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<12>() else { return };
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.migrated) << 6
            | (self.pad_count & 3) << 4
            | self.version & 0x0f;
        let pkey = self.pkey.to_be_bytes();
        let qpn = self.destination.value().to_be_bytes();
        let psn = self.psn.value().to_be_bytes();
        *out = [
            self.opcode.byte(),
            flags,
            pkey[0],
            pkey[1],
            u8::from(self.fecn) << 7 | u8::from(self.becn) << 6,
            qpn[1],
            qpn[2],
            qpn[3],
            u8::from(self.ack_request) << 7,
            psn[1],
            psn[2],
            psn[3],
        ];
    }
}

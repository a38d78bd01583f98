//! Datagram extended transport header.

use super::Qpn;

/// DETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key: must equal the receiving queue pair's.
    pub qkey: u32,
    /// Sending queue pair.
    pub source: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the first 8 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Deth> {
        let b: &[u8; 8] = bytes.first_chunk()?;
        Some(Deth {
            qkey: u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
            source: Qpn::new(u32::from_be_bytes([0, b[5], b[6], b[7]])),
        })
    }

    /// Writes 8 bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<8>() else { return };
        out[..4].copy_from_slice(&self.qkey.to_be_bytes());
        out[4..].copy_from_slice(&self.source.value().to_be_bytes());
    }
}

//! ACK extended transport header.

/// AETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// ACK with credits, RNR NAK or NAK: see [`Syndrome`](super::Syndrome).
    pub syndrome: u8,
    /// Message sequence number of the responder, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Aeth> {
        let b: &[u8; 4] = bytes.first_chunk()?;
        Some(Aeth { syndrome: b[0], msn: u32::from_be_bytes([0, b[1], b[2], b[3]]) })
    }

    /// Writes 4 bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<4>() else { return };
        *out = self.msn.to_be_bytes();
        out[0] = self.syndrome;
    }
}

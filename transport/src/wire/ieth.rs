//! Invalidate extended transport header.

/// IETH of 4 bytes, big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ieth {
    /// Remote key to invalidate at the responder.
    pub rkey: u32,
}

impl Ieth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first [`Self::LEN`] bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Ieth> {
        let bytes: &[u8; 4] = bytes.first_chunk()?;
        Some(Ieth { rkey: u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) })
    }

    /// Writes [`Self::LEN`] bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<4>() else { return };
        out[0..4].copy_from_slice(&self.rkey.to_be_bytes());
    }
}

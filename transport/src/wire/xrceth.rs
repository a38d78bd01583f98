//! XRC extended transport header.

/// XRCETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcEth {
    /// XRC SRQ number, 24 bits.
    pub srqn: u32,
}

impl XrcEth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<XrcEth> {
        let b: &[u8; 4] = bytes.first_chunk()?;
        Some(XrcEth { srqn: u32::from_be_bytes([0, b[1], b[2], b[3]]) })
    }

    /// Writes 4 bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<4>() else { return };
        *out = (self.srqn & 0xff_ffff).to_be_bytes();
    }
}

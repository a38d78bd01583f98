//! FLUSH extended transport header.

/// FETH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feth {
    /// Placement type: bit 0 global visibility, bit 1 persistence, 4 bits.
    pub placement: u8,
    /// Selectivity: 0 a range, 1 the whole region, 2 bits.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Feth> {
        let b: &[u8; 4] = bytes.first_chunk()?;
        Some(Feth { placement: b[3] & 0x0f, selectivity: b[3] >> 4 & 3 })
    }

    /// Writes 4 bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<4>() else { return };
        *out = [0, 0, 0, self.placement & 0x0f | (self.selectivity & 3) << 4];
    }
}

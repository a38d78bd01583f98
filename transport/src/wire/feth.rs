//! FLUSH extended transport header: placement type and selectivity.

/// Placement and selectivity of a FLUSH. Reserved bits are ignored and written as zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feth {
    /// Placement type, 4 bits: 1 = global visibility, 2 = persistence, may be combined.
    pub placement: u8,
    /// Selectivity, 2 bits: 0 = the range of the RETH, 1 = the whole memory region.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Feth> {
        let &[_, _, _, low] = bytes.first_chunk::<{ Feth::LEN }>()?;
        Some(Feth { placement: low & 0x0f, selectivity: (low >> 4) & 3 })
    }

    /// Writes 4 bytes at the start of `out`, excess bits cut off; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ Feth::LEN }>() else { return };
        *out = [0, 0, 0, (self.selectivity & 3) << 4 | (self.placement & 0x0f)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(Feth::parse(&[0, 0, 0, 0x13]), Some(Feth { placement: 3, selectivity: 1 }));
        assert_eq!(Feth::parse(&[0xff, 0xff, 0xff, 0xc1, 0]), Some(Feth { placement: 1, selectivity: 0 }));
        let mut out = [0xee; 5];
        Feth { placement: 2, selectivity: 1 }.emit(&mut out);
        assert_eq!(out, [0, 0, 0, 0x12, 0xee]);
    }

    #[test]
    fn short_buffers_are_refused_and_left_alone() {
        assert_eq!(Feth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        Feth { placement: 1, selectivity: 0 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }
}

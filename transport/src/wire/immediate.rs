//! The two four-byte headers at the end of a message: immediate data and the key to invalidate.

/// Immediate data: the four bytes of the application, unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImmDt(pub [u8; 4]);

impl ImmDt {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<ImmDt> {
        bytes.first_chunk().copied().map(ImmDt)
    }

    /// Writes 4 bytes at the start of `out`; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ ImmDt::LEN }>() else { return };
        *out = self.0;
    }
}

/// Header with the key that a SEND with invalidate invalidates at its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ieth {
    /// Key to invalidate at the receiver.
    pub rkey: u32,
}

impl Ieth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Ieth> {
        Some(Ieth { rkey: u32::from_be_bytes(*bytes.first_chunk()?) })
    }

    /// Writes 4 bytes at the start of `out`; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ Ieth::LEN }>() else { return };
        *out = self.rkey.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(ImmDt::parse(&[1, 2, 3, 4, 5]), Some(ImmDt([1, 2, 3, 4])));
        assert_eq!(Ieth::parse(&[1, 2, 3, 4, 5]), Some(Ieth { rkey: 0x0102_0304 }));
        let mut out = [0xee; 5];
        ImmDt([4, 3, 2, 1]).emit(&mut out);
        assert_eq!(out, [4, 3, 2, 1, 0xee]);
        Ieth { rkey: 0xdead_beef }.emit(&mut out);
        assert_eq!(out, [0xde, 0xad, 0xbe, 0xef, 0xee]);
    }

    #[test]
    fn short_buffers_are_refused_and_left_alone() {
        assert_eq!(ImmDt::parse(&[0; 3]), None);
        assert_eq!(Ieth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        ImmDt([0; 4]).emit(&mut out);
        Ieth { rkey: 0 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }
}

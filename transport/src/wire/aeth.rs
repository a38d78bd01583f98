//! ACK extended transport header: syndrome and message sequence number of an answer.

/// Syndrome and message count of ACK, NAK, and the READ and atomic responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// Syndrome byte; see [`super::Syndrome`].
    pub syndrome: u8,
    /// Number of messages that the responder has completed, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Aeth> {
        let &[syndrome, m0, m1, m2] = bytes.first_chunk::<{ Aeth::LEN }>()?;
        Some(Aeth { syndrome, msn: u32::from_be_bytes([0, m0, m1, m2]) })
    }

    /// Writes 4 bytes at the start of `out` (the low 24 bits of the count); writes nothing if `out`
    /// is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ Aeth::LEN }>() else { return };
        let [_, m0, m1, m2] = self.msn.to_be_bytes();
        *out = [self.syndrome, m0, m1, m2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(Aeth::parse(&[0x1f, 0, 0, 1]), Some(Aeth { syndrome: 0x1f, msn: 1 }));
        assert_eq!(Aeth::parse(&[0x60, 0xab, 0xcd, 0xef, 0]), Some(Aeth { syndrome: 0x60, msn: 0xab_cdef }));
        let mut out = [0xee; 5];
        Aeth { syndrome: 0x2c, msn: 0xffab_cdef }.emit(&mut out);
        assert_eq!(out, [0x2c, 0xab, 0xcd, 0xef, 0xee]);
    }

    #[test]
    fn short_buffers_are_refused_and_left_alone() {
        assert_eq!(Aeth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        Aeth { syndrome: 0, msn: 0 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }
}

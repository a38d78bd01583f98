//! XRC extended transport header: the shared receive queue of an XRC request.

/// The shared receive queue that an XRC request is for; in every XRC request packet, in no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcEth {
    /// Number of the shared receive queue, 24 bits.
    pub srqn: u32,
}

impl XrcEth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer. The reserved byte is ignored.
    pub fn parse(bytes: &[u8]) -> Option<XrcEth> {
        let &[_, s0, s1, s2] = bytes.first_chunk::<{ XrcEth::LEN }>()?;
        Some(XrcEth { srqn: u32::from_be_bytes([0, s0, s1, s2]) })
    }

    /// Writes 4 bytes at the start of `out` (the low 24 bits of the number); writes nothing if
    /// `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ XrcEth::LEN }>() else { return };
        *out = (self.srqn & 0x00ff_ffff).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(XrcEth::parse(&[0, 0x12, 0x34, 0x56]), Some(XrcEth { srqn: 0x12_3456 }));
        assert_eq!(XrcEth::parse(&[0xff, 0, 0, 1, 9]), Some(XrcEth { srqn: 1 }));
        let mut out = [0xee; 5];
        XrcEth { srqn: 0xff12_3456 }.emit(&mut out);
        assert_eq!(out, [0, 0x12, 0x34, 0x56, 0xee]);
    }

    #[test]
    fn short_buffers_are_refused_and_left_alone() {
        assert_eq!(XrcEth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        XrcEth { srqn: 1 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }
}

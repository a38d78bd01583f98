//! Datagram extended transport header: Q_Key and sender of an unreliable datagram.

use super::Qpn;

/// Q_Key and sender of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Must equal the receiving queue pair's Q_Key.
    pub qkey: u32,
    /// Queue pair that sent the datagram.
    pub source: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the first 8 bytes; `None` if there are fewer. The reserved byte is ignored.
    pub fn parse(bytes: &[u8]) -> Option<Deth> {
        let &[q0, q1, q2, q3, _, s0, s1, s2] = bytes.first_chunk::<{ Deth::LEN }>()?;
        Some(Deth {
            qkey: u32::from_be_bytes([q0, q1, q2, q3]),
            source: Qpn::new(u32::from_be_bytes([0, s0, s1, s2])),
        })
    }

    /// Writes 8 bytes at the start of `out`; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ Deth::LEN }>() else { return };
        out[..4].copy_from_slice(&self.qkey.to_be_bytes());
        out[4..].copy_from_slice(&self.source.value().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let bytes = [0x80, 0x01, 0, 0, 0, 0x12, 0x34, 0x56];
        let deth = Deth { qkey: 0x8001_0000, source: Qpn::new(0x12_3456) };
        assert_eq!(Deth::parse(&bytes), Some(deth));
        let mut out = [0xee; 9];
        deth.emit(&mut out);
        assert_eq!(out[..8], bytes);
        assert_eq!(out[8], 0xee);
    }

    #[test]
    fn the_reserved_byte_is_ignored_and_short_buffers_are_refused() {
        assert_eq!(Deth::parse(&[0, 0, 0, 1, 0xff, 0, 0, 2]), Some(Deth { qkey: 1, source: Qpn::new(2) }));
        assert_eq!(Deth::parse(&[0; 7]), None);
        let mut out = [7; 7];
        Deth { qkey: 1, source: Qpn::GSI }.emit(&mut out);
        assert_eq!(out, [7; 7]);
    }
}

//! RDMA extended transport header: the remote range of WRITE, READ, FLUSH and ATOMIC WRITE.

/// Remote range of an RDMA request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reth {
    /// Remote virtual address.
    pub address: u64,
    /// Key of the remote memory.
    pub rkey: u32,
    /// Bytes of the whole message, up to 2^31.
    pub length: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the first 16 bytes; `None` if there are fewer.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Reth> {
        let (address, rest) = bytes.split_first_chunk()?;
        let (rkey, rest) = rest.split_first_chunk()?;
        let length = rest.first_chunk()?;
        Some(Reth {
            address: u64::from_be_bytes(*address),
            rkey: u32::from_be_bytes(*rkey),
            length: u32::from_be_bytes(*length),
        })
    }

    /// Writes 16 bytes at the start of `out`; writes nothing if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ Reth::LEN }>() else { return };
        out[..8].copy_from_slice(&self.address.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..].copy_from_slice(&self.length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let bytes = [0, 0, 0x7f, 0, 0x11, 0x22, 0x33, 0x44, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0x10];
        let reth = Reth { address: 0x7f00_1122_3344, rkey: 0xdead_beef, length: 16 };
        assert_eq!(Reth::parse(&bytes), Some(reth));
        let mut out = [0xee; 17];
        reth.emit(&mut out);
        assert_eq!(out[..16], bytes);
        assert_eq!(out[16], 0xee);
    }

    #[test]
    fn short_buffers_are_refused_and_left_alone() {
        assert_eq!(Reth::parse(&[0; 15]), None);
        let mut out = [7; 15];
        Reth { address: 1, rkey: 2, length: 3 }.emit(&mut out);
        assert_eq!(out, [7; 15]);
    }
}

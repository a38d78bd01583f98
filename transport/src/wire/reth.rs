//! RDMA extended transport header: which remote memory.

/// RETH of 16 bytes, big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address in the responder's region.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole message, 0 to 2^31.
    pub length: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the first [`Self::LEN`] bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Reth> {
        let bytes: &[u8; 16] = bytes.first_chunk()?;
        Some(Reth {
            address: u64::from_be_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ]),
            rkey: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            length: u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
        })
    }

    /// Writes [`Self::LEN`] bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<16>() else { return };
        out[0..8].copy_from_slice(&self.address.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..16].copy_from_slice(&self.length.to_be_bytes());
    }
}

//! Atomic extended transport header: which remote memory, and the operands as integers.

/// ATOMICETH of 28 bytes, big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to store (CmpSwap) or to add (FetchAdd).
    pub swap_or_add: u64,
    /// Expected value (CmpSwap).
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the first [`Self::LEN`] bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<AtomicEth> {
        let bytes: &[u8; 28] = bytes.first_chunk()?;
        Some(AtomicEth {
            address: u64::from_be_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ]),
            rkey: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            swap_or_add: u64::from_be_bytes([
                bytes[12], bytes[13], bytes[14], bytes[15], bytes[16], bytes[17], bytes[18], bytes[19],
            ]),
            compare: u64::from_be_bytes([
                bytes[20], bytes[21], bytes[22], bytes[23], bytes[24], bytes[25], bytes[26], bytes[27],
            ]),
        })
    }

    /// Writes [`Self::LEN`] bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<28>() else { return };
        out[0..8].copy_from_slice(&self.address.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        out[20..28].copy_from_slice(&self.compare.to_be_bytes());
    }
}

//! Atomic acknowledge extended transport header.

/// ATOMICACKETH of 8 bytes, big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// Value of the target before the operation, as an integer.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the first [`Self::LEN`] bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<AtomicAckEth> {
        let bytes: &[u8; 8] = bytes.first_chunk()?;
        Some(AtomicAckEth {
            original: u64::from_be_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ]),
        })
    }

    /// Writes [`Self::LEN`] bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<8>() else { return };
        out[0..8].copy_from_slice(&self.original.to_be_bytes());
    }
}

//! Immediate data.

/// Four bytes exactly as the application gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImmDt(pub [u8; 4]);

impl ImmDt {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<ImmDt> {
        bytes.first_chunk().copied().map(ImmDt)
    }

    /// Writes 4 bytes to the front of `out`; writes nothing if there is no room.
    pub fn emit(&self, out: &mut [u8]) {
        if let Some(out) = out.first_chunk_mut::<4>() {
            *out = self.0;
        }
    }
}

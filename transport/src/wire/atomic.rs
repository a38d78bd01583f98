//! Atomic extended transport headers: the request with its operands, the answer with the original value.

/// Target and operands of CmpSwap and FetchAdd. Operands are integers: big-endian on the wire, host
/// order in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote virtual address, a multiple of 8.
    pub address: u64,
    /// Key of the remote memory.
    pub rkey: u32,
    /// CmpSwap: the new value. FetchAdd: the addend.
    pub swap_or_add: u64,
    /// CmpSwap: the value that the target must have. FetchAdd: unused.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the first 28 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<AtomicEth> {
        let (address, rest) = bytes.split_first_chunk()?;
        let (rkey, rest) = rest.split_first_chunk()?;
        let (swap_or_add, rest) = rest.split_first_chunk()?;
        let compare = rest.first_chunk()?;
        Some(AtomicEth {
            address: u64::from_be_bytes(*address),
            rkey: u32::from_be_bytes(*rkey),
            swap_or_add: u64::from_be_bytes(*swap_or_add),
            compare: u64::from_be_bytes(*compare),
        })
    }

    /// Writes 28 bytes at the start of `out`; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ AtomicEth::LEN }>() else { return };
        out[..8].copy_from_slice(&self.address.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        out[20..].copy_from_slice(&self.compare.to_be_bytes());
    }
}

/// Answer of an atomic: the value that the target had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// Original value of the target.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the first 8 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<AtomicAckEth> {
        Some(AtomicAckEth { original: u64::from_be_bytes(*bytes.first_chunk()?) })
    }

    /// Writes 8 bytes at the start of `out`; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ AtomicAckEth::LEN }>() else { return };
        *out = self.original.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_the_request() {
        let bytes = [
            0x00, 0x00, 0x7f, 0x00, 0x11, 0x22, 0x33, 0x48, // address
            0xca, 0xfe, 0xba, 0xbe, // rkey
            1, 2, 3, 4, 5, 6, 7, 8, // swap
            9, 10, 11, 12, 13, 14, 15, 16, // compare
        ];
        let header = AtomicEth {
            address: 0x7f00_1122_3348,
            rkey: 0xcafe_babe,
            swap_or_add: 0x0102_0304_0506_0708,
            compare: 0x090a_0b0c_0d0e_0f10,
        };
        assert_eq!(AtomicEth::parse(&bytes), Some(header));
        let mut out = [0xee; 29];
        header.emit(&mut out);
        assert_eq!(out[..28], bytes);
        assert_eq!(out[28], 0xee);
        assert_eq!(AtomicEth::parse(&bytes[..27]), None);
        let mut short = [7; 27];
        header.emit(&mut short);
        assert_eq!(short, [7; 27]);
    }

    #[test]
    fn golden_bytes_of_the_answer() {
        let header = AtomicAckEth { original: 0x0102_0304_0506_0708 };
        assert_eq!(AtomicAckEth::parse(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), Some(header));
        let mut out = [0xee; 9];
        header.emit(&mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8, 0xee]);
        assert_eq!(AtomicAckEth::parse(&[0; 7]), None);
        let mut short = [7; 7];
        header.emit(&mut short);
        assert_eq!(short, [7; 7]);
    }
}

//! Extended transport headers, and the two four-byte headers at the end of a message.

use super::Qpn;

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

/// Placement and selectivity of a FLUSH. Reserved bits are ignored and written as zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feth {
    /// Placement type, 4 bits: 1 = global visibility, 2 = persistence, may be combined.
    pub placement: u8,
    /// Selectivity, 2 bits: 0 = the range of the RETH, 1 = the whole memory region.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first 4 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Feth> {
        let &[_, _, _, low] = bytes.first_chunk::<{ Feth::LEN }>()?;
        Some(Feth { placement: low & 0x0f, selectivity: (low >> 4) & 3 })
    }

    /// Writes 4 bytes at the start of `out`, excess bits cut off; writes nothing if `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let Some(out) = out.first_chunk_mut::<{ Feth::LEN }>() else { return };
        *out = [0, 0, 0, (self.selectivity & 3) << 4 | (self.placement & 0x0f)];
    }
}

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
    fn aeth_golden_bytes() {
        assert_eq!(Aeth::parse(&[0x1f, 0, 0, 1]), Some(Aeth { syndrome: 0x1f, msn: 1 }));
        assert_eq!(Aeth::parse(&[0x60, 0xab, 0xcd, 0xef, 0]), Some(Aeth { syndrome: 0x60, msn: 0xab_cdef }));
        let mut out = [0xee; 5];
        Aeth { syndrome: 0x2c, msn: 0xffab_cdef }.emit(&mut out);
        assert_eq!(out, [0x2c, 0xab, 0xcd, 0xef, 0xee]);
    }

    #[test]
    fn aeth_short_buffers_are_refused_and_left_alone() {
        assert_eq!(Aeth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        Aeth { syndrome: 0, msn: 0 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }

    #[test]
    fn golden_bytes_of_an_atomic_request() {
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
    fn golden_bytes_of_an_atomic_answer() {
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

    #[test]
    fn deth_golden_bytes() {
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

    #[test]
    fn feth_golden_bytes() {
        assert_eq!(Feth::parse(&[0, 0, 0, 0x13]), Some(Feth { placement: 3, selectivity: 1 }));
        assert_eq!(Feth::parse(&[0xff, 0xff, 0xff, 0xc1, 0]), Some(Feth { placement: 1, selectivity: 0 }));
        let mut out = [0xee; 5];
        Feth { placement: 2, selectivity: 1 }.emit(&mut out);
        assert_eq!(out, [0, 0, 0, 0x12, 0xee]);
    }

    #[test]
    fn feth_short_buffers_are_refused_and_left_alone() {
        assert_eq!(Feth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        Feth { placement: 1, selectivity: 0 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }

    #[test]
    fn immediate_golden_bytes() {
        assert_eq!(ImmDt::parse(&[1, 2, 3, 4, 5]), Some(ImmDt([1, 2, 3, 4])));
        assert_eq!(Ieth::parse(&[1, 2, 3, 4, 5]), Some(Ieth { rkey: 0x0102_0304 }));
        let mut out = [0xee; 5];
        ImmDt([4, 3, 2, 1]).emit(&mut out);
        assert_eq!(out, [4, 3, 2, 1, 0xee]);
        Ieth { rkey: 0xdead_beef }.emit(&mut out);
        assert_eq!(out, [0xde, 0xad, 0xbe, 0xef, 0xee]);
    }

    #[test]
    fn immediate_short_buffers_are_refused_and_left_alone() {
        assert_eq!(ImmDt::parse(&[0; 3]), None);
        assert_eq!(Ieth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        ImmDt([0; 4]).emit(&mut out);
        Ieth { rkey: 0 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }

    #[test]
    fn reth_golden_bytes() {
        let bytes = [0, 0, 0x7f, 0, 0x11, 0x22, 0x33, 0x44, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0x10];
        let reth = Reth { address: 0x7f00_1122_3344, rkey: 0xdead_beef, length: 16 };
        assert_eq!(Reth::parse(&bytes), Some(reth));
        let mut out = [0xee; 17];
        reth.emit(&mut out);
        assert_eq!(out[..16], bytes);
        assert_eq!(out[16], 0xee);
    }

    #[test]
    fn reth_short_buffers_are_refused_and_left_alone() {
        assert_eq!(Reth::parse(&[0; 15]), None);
        let mut out = [7; 15];
        Reth { address: 1, rkey: 2, length: 3 }.emit(&mut out);
        assert_eq!(out, [7; 15]);
    }

    #[test]
    fn xrceth_golden_bytes() {
        assert_eq!(XrcEth::parse(&[0, 0x12, 0x34, 0x56]), Some(XrcEth { srqn: 0x12_3456 }));
        assert_eq!(XrcEth::parse(&[0xff, 0, 0, 1, 9]), Some(XrcEth { srqn: 1 }));
        let mut out = [0xee; 5];
        XrcEth { srqn: 0xff12_3456 }.emit(&mut out);
        assert_eq!(out, [0, 0x12, 0x34, 0x56, 0xee]);
    }

    #[test]
    fn xrceth_short_buffers_are_refused_and_left_alone() {
        assert_eq!(XrcEth::parse(&[0; 3]), None);
        let mut out = [7; 3];
        XrcEth { srqn: 1 }.emit(&mut out);
        assert_eq!(out, [7; 3]);
    }
}

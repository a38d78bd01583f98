//! The headers that follow the BTH, and their offsets.

use core::mem;

use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};

bitflags::bitflags! {
    /// Headers after the BTH. Bits ascend in the order in which the headers follow each other.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct HeaderSet: u16 {
        /// XRC: shared receive queue.
        const XRCETH = 1 << 0;
        /// Datagram: Q_Key and source.
        const DETH = 1 << 1;
        /// FLUSH: placement and selectivity.
        const FETH = 1 << 2;
        /// RDMA: remote range.
        const RETH = 1 << 3;
        /// Atomic: target and operands.
        const ATOMIC_ETH = 1 << 4;
        /// Answer: syndrome and MSN.
        const AETH = 1 << 5;
        /// Atomic answer: original value.
        const ATOMIC_ACK_ETH = 1 << 6;
        /// Immediate data.
        const IMM = 1 << 7;
        /// Key to invalidate.
        const IETH = 1 << 8;
        /// The sixteen reserved bytes of a CNP.
        const CNP_RESERVED = 1 << 9;
    }
}

/// Reserved bytes of a CNP between BTH and ICRC.
pub(super) const CNP_RESERVED_BYTES: usize = 16;

impl HeaderSet {
    /// Length of each header, by bit number.
    const BYTES: [usize; 10] = [
        XrcEth::LEN,
        Deth::LEN,
        Feth::LEN,
        Reth::LEN,
        AtomicEth::LEN,
        Aeth::LEN,
        AtomicAckEth::LEN,
        ImmDt::LEN,
        Ieth::LEN,
        CNP_RESERVED_BYTES,
    ];

    /// Returns the length of all these headers together, without the BTH.
    #[expect(clippy::indexing_slicing, reason = "the mask leaves only bits that the table has")]
    #[inline]
    pub const fn bytes(self) -> usize {
        let mut rest = self.bits() as usize & ((1 << HeaderSet::BYTES.len()) - 1);
        let mut sum = 0;
        while rest != 0 {
            sum += HeaderSet::BYTES[rest.trailing_zeros() as usize];
            rest &= rest - 1;
        }
        sum
    }

    /// Returns the offset of `header` (a single bit) from the start of the BTH; `None` if it is not in the
    /// set.
    #[inline]
    pub const fn offset_of(self, header: HeaderSet) -> Option<usize> {
        if !self.intersects(header) {
            return None;
        }
        let before = HeaderSet::from_bits_truncate(self.bits() & header.bits().wrapping_sub(1));
        Some(Bth::LEN + before.bytes())
    }
}

/// A header after the BTH.
pub(crate) trait ExtensionHeader {
    /// Bit of the header in a [`HeaderSet`].
    const KIND: HeaderSet;
    /// Length of the header in bytes.
    const BYTES: usize;

    /// Writes the header at the start of `out`.
    fn write(&self, out: &mut [u8]);
}

macro_rules! headers {
    ($($header:ident $kind:ident;)*) => {$(
        impl ExtensionHeader for $header {
            const KIND: HeaderSet = HeaderSet::$kind;
            const BYTES: usize = $header::LEN;

            #[inline(always)]
            fn write(&self, out: &mut [u8]) {
                self.emit(out);
            }
        }
    )*};
}

headers! {
    XrcEth XRCETH;
    Deth DETH;
    Feth FETH;
    Reth RETH;
    AtomicEth ATOMIC_ETH;
    Aeth AETH;
    AtomicAckEth ATOMIC_ACK_ETH;
    ImmDt IMM;
    Ieth IETH;
}

/// The reserved bytes of a CNP, which are zeros.
pub(crate) struct CnpReserved;

impl ExtensionHeader for CnpReserved {
    const KIND: HeaderSet = HeaderSet::CNP_RESERVED;
    const BYTES: usize = CNP_RESERVED_BYTES;

    fn write(&self, out: &mut [u8]) {
        out.get_mut(..CNP_RESERVED_BYTES).unwrap_or_default().fill(0);
    }
}

/// The headers after the BTH of a packet that is being written: those in the row of its opcode.
pub(crate) struct Extensions<'a> {
    /// Headers that are not written yet.
    missing: HeaderSet,
    rest: &'a mut [u8],
}

impl<'a> Extensions<'a> {
    /// Creates a writer of these headers; `out` has exactly their length.
    #[inline]
    pub(crate) fn new(headers: HeaderSet, out: &'a mut [u8]) -> Extensions<'a> {
        Extensions { missing: headers, rest: out }
    }

    /// Writes the next header, if the opcode has it. Callers put headers in the order of the bits of
    /// [`HeaderSet`].
    #[inline(always)]
    pub(crate) fn put<H: ExtensionHeader>(&mut self, header: impl FnOnce() -> H) {
        if !self.missing.contains(H::KIND) {
            return;
        }
        let is_next = self.missing.bits() & (H::KIND.bits() - 1) == 0;
        debug_assert!(is_next, "a header before this one is missing");
        self.missing.remove(H::KIND);
        let rest = mem::take(&mut self.rest);
        header().write(rest);
        self.rest = rest.get_mut(H::BYTES..).unwrap_or_default();
    }

    /// Reports whether all headers have been written.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_headers_of_the_set_are_put() {
        let set = HeaderSet::XRCETH | HeaderSet::IMM;
        let mut out = [0xee; 8];
        let mut extensions = Extensions::new(set, &mut out);
        extensions.put(|| XrcEth { srqn: 0x44 });
        extensions.put::<Reth>(|| unreachable!("the set has no RETH"));
        assert!(!extensions.is_complete());
        extensions.put(|| ImmDt(*b"imm!"));
        assert!(extensions.is_complete());
        assert_eq!(out, *b"\0\0\0\x44imm!");
    }

    #[test]
    fn header_offsets_follow_the_order_of_the_wire() {
        let set = HeaderSet::XRCETH | HeaderSet::RETH | HeaderSet::IMM;
        assert_eq!(set.bytes(), 24);
        assert_eq!(set.offset_of(HeaderSet::XRCETH), Some(12));
        assert_eq!(set.offset_of(HeaderSet::RETH), Some(16));
        assert_eq!(set.offset_of(HeaderSet::IMM), Some(32));
        assert_eq!(set.offset_of(HeaderSet::AETH), None);
        assert_eq!((HeaderSet::FETH | HeaderSet::RETH).offset_of(HeaderSet::RETH), Some(16));
        assert_eq!(HeaderSet::all().bytes(), 96);
        assert_eq!(HeaderSet::from_bits_retain(0xfc00).bytes(), 0, "unknown bits have no bytes");
    }
}

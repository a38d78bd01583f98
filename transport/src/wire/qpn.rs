//! Queue pair numbers and packet sequence numbers.

use core::fmt;

/// Index of a process among those that share a port. A process gives its queue pairs and XRC SRQs numbers
/// whose upper bits are its index, so that every process can see from a packet which process it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ProcessIndex(u8);

impl ProcessIndex {
    /// Number of bits below those of the process.
    const SHIFT: u32 = 16;

    /// The index of queue pair 1, which belongs to no process, and of a process that shares its port with no
    /// other.
    pub const NONE: ProcessIndex = ProcessIndex(0);
    /// The lowest index of a process that shares a port.
    pub const FIRST: ProcessIndex = ProcessIndex(1);
    /// The highest index of a process that shares a port: 255 is in the queue pair number of multicast.
    pub const LAST: ProcessIndex = ProcessIndex(254);

    /// Iterates over the indices that processes may have, in order.
    #[inline]
    pub fn all() -> impl Iterator<Item = ProcessIndex> {
        (ProcessIndex::FIRST.0..=ProcessIndex::LAST.0).map(ProcessIndex)
    }

    /// Reports whether a process that shares a port may have this index.
    #[inline]
    pub const fn is_of_process(self) -> bool {
        ProcessIndex::FIRST.0 <= self.0 && self.0 <= ProcessIndex::LAST.0
    }

    /// Returns the process with this index.
    #[inline]
    pub const fn new(index: u8) -> ProcessIndex {
        ProcessIndex(index)
    }

    /// Returns the index.
    #[inline]
    pub const fn value(self) -> u8 {
        self.0
    }

    /// Returns the process that owns the XRC SRQ with this number.
    #[inline]
    pub const fn of_srqn(srqn: u32) -> ProcessIndex {
        Qpn::new(srqn).process()
    }

    /// Returns the first of the 65536 numbers that the process gives to its queue pairs, or to its XRC SRQs.
    #[inline]
    pub const fn number_base(self) -> u32 {
        (self.0 as u32) << ProcessIndex::SHIFT
    }
}

impl From<ProcessIndex> for usize {
    #[inline]
    fn from(process: ProcessIndex) -> usize {
        process.0.into()
    }
}

impl From<ProcessIndex> for u32 {
    #[inline]
    fn from(process: ProcessIndex) -> u32 {
        process.0.into()
    }
}

impl fmt::Display for ProcessIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A queue pair number, below 2^24.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// Subnet management interface: does not exist on RoCE.
    pub const SMI: Qpn = Qpn(0);
    /// General services interface.
    pub const GSI: Qpn = Qpn(1);
    /// Destination of multicast datagrams.
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// Returns the queue pair number made of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & 0xff_ffff)
    }

    /// Returns the number of a process's queue pair.
    #[inline]
    pub const fn of(process: ProcessIndex, index: u16) -> Qpn {
        Qpn(process.number_base() | index as u32)
    }

    /// Returns the number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the process that the queue pair belongs to.
    #[inline]
    pub const fn process(self) -> ProcessIndex {
        ProcessIndex((self.0 >> ProcessIndex::SHIFT) as u8)
    }

    /// Returns the index of the queue pair within its process.
    #[inline]
    pub const fn index(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A packet sequence number. Arithmetic is modulo 2^24; of two numbers, the one at most 2^23 − 1
/// steps ahead is the later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0x00ff_ffff;

    /// Returns the PSN with the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & Psn::MASK)
    }

    /// Returns the number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the PSN `count` packets later.
    #[inline]
    pub const fn plus(self, count: u32) -> Psn {
        Psn::new(self.0.wrapping_add(count))
    }

    /// Returns the PSN `count` packets earlier.
    #[inline]
    pub const fn minus(self, count: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(count))
    }

    /// Returns the PSN after this one.
    #[inline]
    pub const fn next(self) -> Psn {
        self.plus(1)
    }

    /// Returns the signed distance from `origin` to `self`, −2^23 … 2^23 − 1.
    #[inline]
    pub const fn since(self, origin: Psn) -> i32 {
        //= statement:16
        //| The 2^23 PSNs before the expected one are duplicates, and PSNs wrap after 0xFFFFFF.
        (self.0.wrapping_sub(origin.0) << 8) as i32 >> 8
    }

    /// Reports whether `self` is older than `other`.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.since(other) < 0
    }

    /// Reports whether `self` is newer than `other`.
    #[inline]
    pub const fn is_after(self, other: Psn) -> bool {
        self.since(other) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_process_and_an_index() {
        let qpn = Qpn::of(ProcessIndex::new(0xab), 0xcdef);
        assert_eq!(qpn, Qpn::new(0xab_cdef));
        assert_eq!((qpn.process().value(), qpn.index()), (0xab, 0xcdef));
        assert_eq!((Qpn::GSI.process(), Qpn::GSI.index()), (ProcessIndex::new(0), 1));
        assert_eq!(ProcessIndex::of_srqn(0x12_3456), ProcessIndex::new(0x12));
        assert_eq!(ProcessIndex::new(0x12).number_base(), 0x12_0000);
    }

    #[test]
    fn arithmetic_wraps_at_24_bits() {
        assert_eq!(Psn::new(0xff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).minus(1).value(), 0xff_ffff);
        assert_eq!(Psn::new(0x1234_5678).value(), 0x34_5678);
    }

    #[test]
    fn the_half_circle_before_is_older_and_the_half_after_is_newer() {
        let origin = Psn::new(5);
        assert_eq!(origin.minus(1 << 23).since(origin), -(1 << 23));
        assert!(origin.minus(1 << 23).is_before(origin));
        assert!(origin.plus((1 << 23) - 1).is_after(origin));
        assert_eq!(Psn::new(2).since(Psn::new(0xff_fffe)), 4);
    }
}

//! Packet sequence numbers: 24 bits, compared on a circle.

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

//! Queue pair numbers: 24 bits.

use core::fmt;

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

    /// The number made of the low 24 bits of `value`.
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & 0xff_ffff)
    }

    /// The number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

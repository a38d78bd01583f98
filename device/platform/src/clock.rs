//! The two clocks that a device can have: the machine's and virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::outside::time::{monotonic_ns, process_time_ns};

/// A clock that counts nanoseconds since some origin and never goes back.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The operating system's monotonic clock, less its value at the origin.
    Monotonic {
        /// The value of the monotonic clock at the origin, in ns.
        origin_ns: u64,
    },
    /// Virtual time, moved by a `World`.
    Virtual(VirtualTime),
}

impl Clock {
    /// Returns the operating system's clock, counting from now.
    pub fn monotonic() -> Clock {
        Clock::Monotonic { origin_ns: monotonic_ns() }
    }

    /// Returns the nanoseconds since the origin.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { origin_ns } => monotonic_ns().saturating_sub(*origin_ns),
            Clock::Virtual(time) => time.now_ns(),
        }
    }

    /// Returns the value at the origin of the clock that all processes of the host share, in ns; 0 in virtual
    /// time.
    pub fn origin_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { origin_ns } => *origin_ns,
            Clock::Virtual(_) => 0,
        }
    }

    /// Reports whether this is virtual time, which no background thread may follow.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }
}

/// Returns the earliest of some times, if there is one; `u64::MAX` means never. The code uses a number for
/// "never" and not a chain over options: the compiler reads the value of an option before its discriminant
/// there, which valgrind reports as a use of uninitialised memory.
#[inline(always)]
pub fn earliest<const N: usize>(times_ns: [Option<u64>; N]) -> Option<u64> {
    let mut first_ns = u64::MAX;
    for at_ns in times_ns {
        first_ns = first_ns.min(at_ns.unwrap_or(u64::MAX));
    }
    (first_ns != u64::MAX).then_some(first_ns)
}

/// A shared virtual clock in ns.
#[derive(Debug, Clone, Default)]
pub struct VirtualTime(Arc<AtomicU64>);

impl VirtualTime {
    /// Returns the present time, in ns.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Moves time forward; a time in the past is ignored.
    pub fn advance_to(&self, now_ns: u64) {
        self.0.fetch_max(now_ns, Ordering::AcqRel);
    }
}

//! Where the time comes from: the only two clocks there are, and how busy this process was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since some origin, never going back.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The operating system's monotonic clock, less what it said at the origin.
    Monotonic {
        /// That, in ns.
        origin_ns: u64,
    },
    /// Virtual time, moved by a `World`.
    Virtual(VirtualTime),
}

impl Clock {
    /// The operating system's clock, counting from now.
    pub fn monotonic() -> Clock {
        Clock::Monotonic { origin_ns: monotonic_ns() }
    }

    /// Nanoseconds since the origin.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { origin_ns } => monotonic_ns().saturating_sub(*origin_ns),
            Clock::Virtual(time) => time.now_ns(),
        }
    }

    /// What the clock that all processes of the host share says at the origin; 0 in virtual time.
    pub fn origin_ns(&self) -> u64 {
        match self {
            Clock::Monotonic { origin_ns } => *origin_ns,
            Clock::Virtual(_) => 0,
        }
    }

    /// Whether a background thread may follow this clock.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }
}

/// What CLOCK_MONOTONIC says, in ns. It is read for every step of the data path and every event, so without
/// the checks of [`std::time::Instant`].
#[inline]
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// The time of all processors that all threads of this process have taken, in ns.
pub fn process_time_ns() -> u64 {
    read_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// What a clock of the operating system says, in ns.
#[inline]
fn read_ns(clock: ClockId) -> u64 {
    // It cannot fail, and 64 bits of nanoseconds last 584 years.
    clock_gettime(clock)
        .map_or(0, |now| (now.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec() as u64))
}

/// A shared virtual clock in ns.
#[derive(Debug, Clone, Default)]
pub struct VirtualTime(Arc<AtomicU64>);

impl VirtualTime {
    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Moves time forward; a time in the past is ignored.
    pub fn advance_to(&self, now_ns: u64) {
        self.0.fetch_max(now_ns, Ordering::AcqRel);
    }
}

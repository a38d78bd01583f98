//! Where the time comes from: the only two clocks there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Nanoseconds since some origin, never going back.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The operating system's monotonic clock.
    Monotonic(Instant),
    /// Virtual time, moved by a [`World`](crate::world::World).
    Virtual(VirtualTime),
}

impl Clock {
    /// The operating system's clock, counting from now.
    pub fn monotonic() -> Clock {
        Clock::Monotonic(Instant::now())
    }

    /// Nanoseconds since the origin.
    pub fn now_ns(&self) -> u64 {
        match self {
            // 64 bits of nanoseconds last 584 years.
            Clock::Monotonic(origin) => origin.elapsed().as_nanos() as u64,
            Clock::Virtual(time) => time.now_ns(),
        }
    }

    /// Whether a background thread may follow this clock.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }
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

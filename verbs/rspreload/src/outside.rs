//! The preload's own gate to the outside. It imports no floor, so it cannot ask that of the device.

use std::time::{Duration, Instant};

use libc::pid_t;

/// A clock that never goes back.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How long ago `begun` was.
pub(crate) fn since(begun: Instant) -> Duration {
    begun.elapsed()
}

/// The number of this process.
pub(crate) fn process() -> pid_t {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::getpid() }
}

//! The clocks of the operating system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time of a clock, in ns; 0 if there is none of this number.
#[inline]
pub(super) fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut read = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `read` is a live timespec, which the call fills.
    let status = unsafe { libc::clock_gettime(clock, &mut read) };
    if status != 0 {
        return 0;
    }
    // 64 bits of nanoseconds last 584 years.
    (read.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(read.tv_nsec as u64)
}

/// Returns the time since the beginning of 1970.
pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

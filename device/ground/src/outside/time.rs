//! Time: clocks, sleep, and waits that end.

use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::answers::{REPLACED, outside};
use super::clocks::read_ns;
use super::world;

/// A clock that never goes back.
#[inline]
pub fn now() -> Instant {
    match REPLACED.get() {
        None => Instant::now(),
        Some(outside) => outside.now(),
    }
}

/// How long ago `begun` was.
#[inline]
pub fn since(begun: Instant) -> Duration {
    now().saturating_duration_since(begun)
}

/// The time since the beginning of 1970.
pub fn since_1970() -> Duration {
    outside().since_1970()
}

/// What CLOCK_MONOTONIC says, in ns. It is read for every step of the data path and every event, so without
/// the checks of [`Instant`].
#[inline]
pub fn monotonic_ns() -> u64 {
    match REPLACED.get() {
        None => read_ns(libc::CLOCK_MONOTONIC),
        Some(outside) => outside.monotonic_ns(),
    }
}

/// The time of all processors that all threads of this process have taken, in ns.
pub fn process_time_ns() -> u64 {
    read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Lets so much time pass.
pub fn sleep(duration: Duration) {
    outside().sleep(duration);
}

/// Lets other threads have the processor.
pub fn idle() {
    if world::is_here() {
        // Who idles has found nothing. That needs no stop each time.
        world::looked_in_vain();
    } else {
        outside().idle();
    }
}

/// Waits until another thread notifies `changed`, but no longer than `patience`. A panic of another thread
/// that held the lock does not end the wait: what the lock guards has to be right at all times.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, patience: Duration) -> MutexGuard<'a, T> {
    let patience = outside().patience(patience);
    changed.wait_timeout(guard, patience).unwrap_or_else(PoisonError::into_inner).0
}

/// As [`wait`], and goes on to wait while `condition` holds.
pub fn wait_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    patience: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let patience = outside().patience(patience);
    changed.wait_timeout_while(guard, patience, condition).unwrap_or_else(PoisonError::into_inner).0
}

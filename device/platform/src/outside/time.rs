//! Time: clocks, sleep, and waits with a limit.

use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::process::{REPLACEMENT, clock_ns, outside};
use super::world;

/// Returns the time of a clock that never goes back.
#[inline]
pub fn now() -> Instant {
    match REPLACEMENT.get() {
        None => Instant::now(),
        Some(outside) => outside.now(),
    }
}

/// Returns how long ago `begun` was.
#[inline]
pub fn since(begun: Instant) -> Duration {
    now().saturating_duration_since(begun)
}

/// Returns the time since the beginning of 1970.
pub fn since_1970() -> Duration {
    outside().since_1970()
}

/// Returns the time of CLOCK_MONOTONIC, in ns. It is read for every step of the data path and every event, so
/// without the checks of [`Instant`].
#[inline]
pub fn monotonic_ns() -> u64 {
    match REPLACEMENT.get() {
        None => clock_ns(libc::CLOCK_MONOTONIC),
        Some(outside) => outside.monotonic_ns(),
    }
}

/// Returns the time on all processors that all threads of this process have used, in ns.
pub fn process_time_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Sleeps for `duration`.
pub fn sleep(duration: Duration) {
    outside().sleep(duration);
}

/// Yields the processor to other threads.
pub fn idle() {
    if world::is_in_world() {
        // A thread that idles has found nothing, which needs no stop each time.
        world::idle_poll();
    } else {
        outside().idle();
    }
}

/// Waits until another thread notifies `changed`, but no longer than `patience`. A panic of another thread
/// that held the lock does not end the wait: the guarded value has to be right at all times.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, patience: Duration) -> MutexGuard<'a, T> {
    let patience = outside().patience(patience);
    changed.wait_timeout(guard, patience).unwrap_or_else(PoisonError::into_inner).0
}

/// Waits as [`wait`] does, again and again while `condition` holds.
pub fn wait_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    patience: Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let patience = outside().patience(patience);
    changed.wait_timeout_while(guard, patience, condition).unwrap_or_else(PoisonError::into_inner).0
}

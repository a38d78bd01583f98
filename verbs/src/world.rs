//! What a program says to the world that it runs in (`pumice world`).

use std::time::Duration;

use pumice_device::outside::world;

/// Lets the time pass that a computation takes on the machine that the program is written for.
///
/// In a world with a performance model (`pumice world --model`) computing takes no time by itself, so that
/// all runs are alike. A program that computes between its messages says here how long. Elsewhere nothing
/// happens.
///
/// ```
/// use std::time::Duration;
///
/// // Multiply the matrices here; on the real machine that takes a millisecond.
/// pumice_verbs::world::compute(Duration::from_millis(1));
/// ```
pub fn compute(time: Duration) {
    if world::has_model() {
        world::charge(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

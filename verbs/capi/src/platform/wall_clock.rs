//! Times of completions on the system's clock.

use pumice_device::outside;
use pumice_device::platform::clock::Clock;

/// Converts times of the device's clock, for one completion queue. The converted time never runs backwards.
///
/// Both clocks run at the same rate: their difference is measured once, and again when the system's clock was
/// set. With one measurement per completion, two completions would be in the right order only by chance.
pub(crate) struct WallClock(ClockState);

#[derive(Clone, Copy)]
struct ClockState {
    /// Difference to add to a time of the device's clock in nanoseconds, modulo 2^64.
    distance_ns: u64,
    /// Time of the newest completion in nanoseconds.
    newest_ns: u64,
}

/// Difference between measurements, in nanoseconds, that does not mean that the clock was set.
const TOLERANCE_NS: u64 = 1_000_000;
/// Longest duration of a valid measurement in nanoseconds: the thread was interrupted in a longer one.
const LONGEST_MEASUREMENT_NS: u64 = TOLERANCE_NS / 4;
const FIRST_MEASUREMENTS: u32 = 8;

impl WallClock {
    pub(crate) fn new(clock: &Clock) -> WallClock {
        // The quickest of several measurements is the most exact.
        let best = (0..FIRST_MEASUREMENTS).map(|_| measure(clock)).min_by_key(|measured| measured.took_ns);
        let distance_ns = best.map_or(0, |measured| measured.distance_ns);
        WallClock(ClockState { distance_ns, newest_ns: 0 })
    }

    /// Converts the time of the completion that was just polled.
    pub(crate) fn translate(&mut self, clock: &Clock, at_ns: u64) -> u64 {
        self.0.translate(at_ns, measure(clock).unless_interrupted())
    }
}

impl ClockState {
    fn translate(&mut self, at_ns: u64, measured_ns: Option<u64>) -> u64 {
        if let Some(measured_ns) = measured_ns {
            let change_ns = measured_ns.wrapping_sub(self.distance_ns).cast_signed().unsigned_abs();
            if change_ns > TOLERANCE_NS {
                self.distance_ns = measured_ns;
            }
        }
        self.newest_ns = self.newest_ns.max(at_ns.wrapping_add(self.distance_ns));
        self.newest_ns
    }
}

/// The difference between the clocks, and the duration of its measurement.
struct ClockMeasurement {
    distance_ns: u64,
    took_ns: u64,
}

impl ClockMeasurement {
    fn unless_interrupted(self) -> Option<u64> {
        (self.took_ns <= LONGEST_MEASUREMENT_NS).then_some(self.distance_ns)
    }
}

fn measure(clock: &Clock) -> ClockMeasurement {
    let before_ns = clock.now_ns();
    let system_ns = outside::since_1970().as_nanos() as u64;
    let took_ns = clock.now_ns().saturating_sub(before_ns);
    ClockMeasurement { distance_ns: system_ns.wrapping_sub(before_ns + took_ns / 2), took_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_of_the_measurement_does_not_change_an_instant() {
        let mut state = ClockState { distance_ns: 1000, newest_ns: 0 };
        for measured_ns in [None, Some(1000), Some(0), Some(900), Some(1000 + TOLERANCE_NS)] {
            assert_eq!(state.translate(5, measured_ns), 1005);
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed_and_never_backwards() {
        let mut state = ClockState { distance_ns: 10_000_000, newest_ns: 0 };
        assert_eq!(state.translate(1, None), 10_000_001);
        assert_eq!(state.translate(2, Some(20_000_000)), 20_000_002);
        assert_eq!(state.translate(3, Some(5_000_000)), 20_000_002, "set back");
        assert_eq!(state.translate(16_000_000, Some(5_000_000)), 21_000_000, "and caught up");
    }

    #[test]
    fn clocks_before_the_epoch_of_the_other_have_a_distance_too() {
        let mut state = ClockState { distance_ns: 0, newest_ns: 0 };
        let distance_ns = 7_u64.wrapping_sub(100_000_000);
        assert_eq!(state.translate(100_000_001, Some(distance_ns)), 8);
    }
}

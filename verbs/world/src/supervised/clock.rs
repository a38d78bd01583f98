//! The clock of a world.

/// Start of the clock of every world, in ns since 1970: a Tuesday of 2026, at noon.
const BEGIN_REAL_NS: u64 = 1_790_078_400_000_000_000;
/// Time for which the machine of every world has been up when the world begins, in ns.
const BEGIN_UP_NS: u64 = 1_000_000_000_000;

/// The time as all processes of the world see it. It advances when a thread makes a call, and when all
/// threads wait.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Time since the beginning of the world, in ns.
    now_ns: u64,
}

impl Clock {
    /// Returns the time since the world began, in ns.
    pub(crate) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the real time at which the world began, in ns since 1970.
    pub(crate) const fn begin_real_ns(&self) -> u64 {
        BEGIN_REAL_NS
    }

    /// Advances the time.
    pub(crate) const fn pass(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
    }

    /// Sets the time to `at_ns`, unless it is later already.
    pub(crate) const fn reach(&mut self, at_ns: u64) {
        if at_ns > self.now_ns {
            self.now_ns = at_ns;
        }
    }

    /// Returns what a clock of the kernel shows, or `None` if all processes do not share that clock.
    pub(crate) const fn of(&self, id: i32) -> Option<u64> {
        match id {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
                Some(BEGIN_REAL_NS + self.now_ns)
            }
            libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_BOOTTIME => Some(BEGIN_UP_NS + self.now_ns),
            // The processor time of a thread is taken to be all time.
            libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => Some(self.now_ns),
            _ => None,
        }
    }

    /// Returns the time, since the world began, at which a clock of the kernel shows `shown_ns`.
    pub(crate) fn until(&self, id: i32, shown_ns: u64) -> u64 {
        let base_ns = self.of(id).map_or(0, |shown_now| shown_now - self.now_ns);
        shown_ns.saturating_sub(base_ns)
    }

    /// Returns the value of the processor's time stamp counter, which counts ns.
    pub(crate) const fn cycles(&self) -> u64 {
        BEGIN_UP_NS + self.now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_moves_with_the_one_clock() {
        let mut clock = Clock::default();
        let before = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(|id| clock.of(id).unwrap());
        clock.pass(5);
        clock.reach(3);
        clock.reach(7);
        let after = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].map(|id| clock.of(id).unwrap());
        assert_eq!([after[0] - before[0], after[1] - before[1]], [7, 7]);
        assert_eq!(clock.until(libc::CLOCK_REALTIME, after[0] + 10), 17);
        assert_eq!(clock.of(99), None);
    }
}

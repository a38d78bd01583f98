//! The test whether a process runs: a process can live, have its index and its sockets, and do nothing with
//! them.
//!
//! It may be stopped (by a debugger, Ctrl-Z), or not have had a processor for long. There are two signs: the
//! kernel's view of it, and the time at which it last found its socket empty, which each process writes into
//! the table of backlogs. An idle process found its socket empty long ago; but a packet that is sent to it
//! wakes it, so a process that has still not polled its socket some time after something was sent to it does
//! not run. Nothing has to be written at intervals, and an idle process sleeps.

use pumice_transport::host::PeerProgress;

use crate::members::member::Availability;
use crate::system::{self, Guard};

/// The kernel's view of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    /// The process runs, sleeps or waits for a processor.
    Alive,
    /// A signal or a debugger has stopped the process.
    Stopped,
    /// The process has exited.
    Exited,
    /// The process is in another PID namespace, or there is no /proc.
    Unknown,
}

/// All that is known about a process to which something was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessSigns {
    /// The process holds the lock of its process index.
    pub(crate) has_index: bool,
    pub(crate) condition: RunState,
    /// The process has polled its socket since something was sent to it, and handled what was there.
    pub(crate) has_polled: bool,
}

/// Infers from the signs whether a process is silent for want of a processor, or because it is absent.
pub(crate) fn peer_progress(signs: ProcessSigns) -> PeerProgress {
    match signs {
        ProcessSigns { has_index: false, .. } | ProcessSigns { condition: RunState::Exited, .. } => {
            PeerProgress::Absent
        }
        ProcessSigns { has_index: true, condition: RunState::Alive, has_polled: false } => {
            PeerProgress::Starved
        }
        _ => PeerProgress::Unknown,
    }
}

/// Returns whether a process that the kernel sees in this condition can serve other processes.
pub(crate) fn reading(condition: RunState) -> Availability {
    match condition {
        RunState::Alive | RunState::Unknown => Availability::Now,
        RunState::Stopped if system::guards(Guard::AroundStopped) => Availability::Later,
        RunState::Stopped => Availability::Now,
        RunState::Exited => Availability::Never,
    }
}

/// The times at which this process found its socket empty.
#[derive(Debug, Default)]
pub(crate) struct IdlePollTimes {
    /// Origin of the engine's clock, on the clock that all processes share.
    origin_ns: Option<u64>,
    /// Number of polls that measured the origin.
    measured: u8,
    last_ns: u64,
}

/// Number of polls that measure the origin of the engine's clock.
const MEASUREMENTS: u8 = 64;

impl IdlePollTimes {
    /// Sets the origin of the engine's clock, which then need not be measured.
    pub(crate) fn set_clock_origin(&mut self, origin_ns: u64) {
        self.origin_ns = Some(origin_ns);
        self.measured = MEASUREMENTS;
    }

    /// Measures the origin of the engine's clock. A thread that loses its processor after `now_ns` was read
    /// and before the other clock is measures too much, so the least value is right.
    fn measure(&mut self, now_ns: u64, monotonic_ns: impl FnOnce() -> u64) -> u64 {
        if let Some(origin_ns) = self.origin_ns.filter(|_| self.measured >= MEASUREMENTS) {
            return origin_ns;
        }
        let measured_ns = monotonic_ns().saturating_sub(now_ns);
        let origin_ns = self.origin_ns.map_or(measured_ns, |origin_ns| origin_ns.min(measured_ns));
        self.origin_ns = Some(origin_ns);
        origin_ns
    }

    /// Converts a time of the engine's clock to the clock that all processes share.
    pub(crate) fn shared_ns(&mut self, now_ns: u64, at_ns: u64, monotonic_ns: impl FnOnce() -> u64) -> u64 {
        self.measure(now_ns, monotonic_ns).wrapping_add(at_ns)
    }

    /// Notes that the socket was found empty at `now_ns`. Returns a time by which everything was handled:
    /// packets that were taken before this poll are answered only after it.
    pub(crate) fn found_empty(&mut self, now_ns: u64, monotonic_ns: impl FnOnce() -> u64) -> u64 {
        let before_ns = self.last_ns;
        let origin_ns = match self.origin_ns {
            Some(origin_ns) if self.measured >= MEASUREMENTS => origin_ns,
            _ => {
                self.measured += 1;
                self.measure(now_ns, monotonic_ns)
            }
        };
        self.last_ns = origin_ns.wrapping_add(now_ns);
        before_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_lives_and_has_not_looked_is_starved() {
        let starved = ProcessSigns { has_index: true, condition: RunState::Alive, has_polled: false };
        assert_eq!(peer_progress(starved), PeerProgress::Starved);
        assert_eq!(peer_progress(ProcessSigns { has_polled: true, ..starved }), PeerProgress::Unknown);
        assert_eq!(peer_progress(ProcessSigns { has_index: false, ..starved }), PeerProgress::Absent);
        for has_polled in [false, true] {
            let gone = ProcessSigns { condition: RunState::Exited, has_polled, ..starved };
            assert_eq!(peer_progress(gone), PeerProgress::Absent);
        }
        for condition in [RunState::Stopped, RunState::Unknown] {
            assert_eq!(
                peer_progress(ProcessSigns { condition, ..starved }),
                PeerProgress::Unknown,
                "{condition:?}"
            );
        }
    }

    #[test]
    fn a_look_counts_when_the_next_one_follows() {
        let mut idle_poll_times = IdlePollTimes::default();
        assert_eq!(idle_poll_times.found_empty(5, || 1005), 0);
        assert_eq!(idle_poll_times.found_empty(7, || 1007), 1005);
        assert_eq!(idle_poll_times.found_empty(9, || 1009), 1007);
        assert_eq!(idle_poll_times.shared_ns(9, 2, || 1009), 1002);
    }

    #[test]
    fn an_origin_that_is_known_is_not_measured() {
        let mut idle_poll_times = IdlePollTimes::default();
        idle_poll_times.set_clock_origin(1000);
        assert_eq!(idle_poll_times.found_empty(5, || unreachable!("it is known")), 0);
        assert_eq!(idle_poll_times.found_empty(7, || unreachable!("as above")), 1005);
        assert_eq!(idle_poll_times.shared_ns(9, 2, || unreachable!("as above")), 1002);
    }

    #[test]
    fn a_thread_that_loses_its_processor_between_two_clocks_does_no_lasting_harm() {
        let mut idle_poll_times = IdlePollTimes::default();
        idle_poll_times.found_empty(10, || 9_000_010);
        assert_eq!(
            idle_poll_times.found_empty(20, || 1020),
            9_000_010,
            "too late: it was asleep for so long"
        );
        assert_eq!(idle_poll_times.found_empty(30, || 7_000_030), 1020);
        for now_ns in 4..=u64::from(MEASUREMENTS) {
            idle_poll_times.found_empty(10 * now_ns, || 1000 + 10 * now_ns);
        }
        idle_poll_times.found_empty(5_000, || unreachable!("that was measured often enough"));
        assert_eq!(idle_poll_times.found_empty(6_000, || unreachable!("as above")), 6_000);
    }
}

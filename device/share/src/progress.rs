//! Whether a process runs: a process can live, have its index and its sockets, and do nothing with
//! them.
//!
//! It may be stopped (a debugger, Ctrl-Z), or not have had a processor for long. Two things tell: what the
//! kernel says about it, and when it last found its socket empty, which each process writes down in the table
//! of backlogs. An idle process found its socket empty long ago; but what is sent to it wakes it, so if it
//! has still not looked some time after something was sent to it, then it does not run. Nothing has to be
//! written at intervals, and an idle process sleeps.

use pumice_transport::host::PeerProgress;

use super::members::Reading;
use super::system::{self, Guard};

/// What the kernel says about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// It runs, sleeps or waits for a processor.
    Alive,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has exited.
    Gone,
    /// It is in another PID namespace, or there is no /proc.
    Unknown,
}

/// All that is known about a process to which something was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signs {
    /// It has the lock of its process index.
    pub(super) has_index: bool,
    pub(super) condition: Condition,
    /// It has looked at its socket since something was sent to it, and dealt with what was there.
    pub(super) has_looked: bool,
}

/// Whether silence of a process is for want of a processor, or because it is not there.
pub(super) fn peer_progress(signs: Signs) -> PeerProgress {
    match signs {
        Signs { has_index: false, .. } | Signs { condition: Condition::Gone, .. } => PeerProgress::Absent,
        Signs { has_index: true, condition: Condition::Alive, has_looked: false } => PeerProgress::Starved,
        _ => PeerProgress::Unknown,
    }
}

/// Whether a process that lives can be left what has to be done for others.
pub(super) fn reading(condition: Condition) -> Reading {
    match condition {
        Condition::Alive | Condition::Unknown => Reading::Now,
        Condition::Stopped if system::guards(Guard::AroundStopped) => Reading::Later,
        Condition::Stopped => Reading::Now,
        Condition::Gone => Reading::Never,
    }
}

/// When this process found its socket empty.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Where the clock of the engine begins, on the clock that all processes share.
    origin_ns: Option<u64>,
    /// Looks that measured it.
    measured: u8,
    last_ns: u64,
}

/// Looks that measure where the engine's clock begins.
const MEASUREMENTS: u8 = 64;

impl Looks {
    /// Where the clock of the engine begins is known, and need not be measured.
    pub(super) fn clock_began(&mut self, origin_ns: u64) {
        self.origin_ns = Some(origin_ns);
        self.measured = MEASUREMENTS;
    }

    /// Measures where the clock of the engine begins. A thread that loses its processor after `now_ns` was
    /// read and before the other clock is, measures too much, so the least is right.
    fn measure(&mut self, now_ns: u64, monotonic_ns: impl FnOnce() -> u64) -> u64 {
        if let Some(origin_ns) = self.origin_ns.filter(|_| self.measured >= MEASUREMENTS) {
            return origin_ns;
        }
        let measured_ns = monotonic_ns().saturating_sub(now_ns);
        let origin_ns = self.origin_ns.map_or(measured_ns, |origin_ns| origin_ns.min(measured_ns));
        self.origin_ns = Some(origin_ns);
        origin_ns
    }

    /// A time of the engine's clock on the clock that all processes share.
    pub(super) fn shared_ns(&mut self, now_ns: u64, at_ns: u64, monotonic_ns: impl FnOnce() -> u64) -> u64 {
        self.measure(now_ns, monotonic_ns).wrapping_add(at_ns)
    }

    /// The socket was found empty at `now_ns`. By the time that is returned everything was dealt with: what
    /// was taken before this look is answered only behind it.
    pub(super) fn found_empty(&mut self, now_ns: u64, monotonic_ns: impl FnOnce() -> u64) -> u64 {
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
        let starved = Signs { has_index: true, condition: Condition::Alive, has_looked: false };
        assert_eq!(peer_progress(starved), PeerProgress::Starved);
        assert_eq!(peer_progress(Signs { has_looked: true, ..starved }), PeerProgress::Unknown);
        assert_eq!(peer_progress(Signs { has_index: false, ..starved }), PeerProgress::Absent);
        for has_looked in [false, true] {
            let gone = Signs { condition: Condition::Gone, has_looked, ..starved };
            assert_eq!(peer_progress(gone), PeerProgress::Absent);
        }
        for condition in [Condition::Stopped, Condition::Unknown] {
            assert_eq!(peer_progress(Signs { condition, ..starved }), PeerProgress::Unknown, "{condition:?}");
        }
    }

    #[test]
    fn a_look_counts_when_the_next_one_follows() {
        let mut looks = Looks::default();
        assert_eq!(looks.found_empty(5, || 1005), 0);
        assert_eq!(looks.found_empty(7, || 1007), 1005);
        assert_eq!(looks.found_empty(9, || 1009), 1007);
        assert_eq!(looks.shared_ns(9, 2, || 1009), 1002);
    }

    #[test]
    fn an_origin_that_is_known_is_not_measured() {
        let mut looks = Looks::default();
        looks.clock_began(1000);
        assert_eq!(looks.found_empty(5, || unreachable!("it is known")), 0);
        assert_eq!(looks.found_empty(7, || unreachable!("as above")), 1005);
        assert_eq!(looks.shared_ns(9, 2, || unreachable!("as above")), 1002);
    }

    #[test]
    fn a_thread_that_loses_its_processor_between_two_clocks_does_no_lasting_harm() {
        let mut looks = Looks::default();
        looks.found_empty(10, || 9_000_010);
        assert_eq!(looks.found_empty(20, || 1020), 9_000_010, "too late: it was asleep for so long");
        assert_eq!(looks.found_empty(30, || 7_000_030), 1020);
        for now_ns in 4..=u64::from(MEASUREMENTS) {
            looks.found_empty(10 * now_ns, || 1000 + 10 * now_ns);
        }
        looks.found_empty(5_000, || unreachable!("that was measured often enough"));
        assert_eq!(looks.found_empty(6_000, || unreachable!("as above")), 6_000);
    }
}

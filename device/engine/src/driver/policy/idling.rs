//! The rules by which application threads yield the processor.

/// The duration in ns beyond which a yield of an application thread let another thread run.
pub(super) const USEFUL_YIELD_NS: u64 = 2_000;
/// The duration in ns beyond which a yield let a thread run that does not yield itself: it computes, or it
/// spins.
pub(super) const LONG_YIELD_NS: u64 = 1_000_000;
/// Largest number of empty polls from one yield to the next while no other thread wants the processor. A
/// yield costs as much as ten polls of rings, which shows in latencies if every wait has one.
pub(super) const LONGEST_YIELD_INTERVAL: u32 = 512;
/// Largest number of empty polls from one yield to the next while yields hold up this process: some ten times
/// as long as one yield takes.
pub(super) const LONGEST_HELD_UP_INTERVAL: u32 = 1 << 16;
/// Number of yields that are observed after a long one. Short yields come between the long ones, because
/// threads that do little, such as the background thread, run as well.
pub(super) const OBSERVED_YIELDS: u8 = u8::MAX;

/// The action of an application thread after a poll that found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyPoll {
    /// The thread returns to the application.
    Return,
    /// The thread yields the processor first.
    Yield {
        /// True to measure what the other threads of this process do meanwhile.
        observe: bool,
    },
}

/// The result of a yield of an application thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Yielded {
    /// The duration of the yield, in ns.
    pub(crate) took_ns: u64,
    /// The time on all processors that the other threads of this process used, in ns, if that was observed.
    pub(crate) others_ns: Option<u64>,
}

/// The state that decides when application threads yield the processor: the empty polls since the last yield,
/// and the interval to the next.
///
/// Spinning would keep the very process from running whose packet is awaited; a yield that no other thread
/// takes costs as much as a poll. A yield that took long shows that another thread ran.
///
/// That thread may be one of this process that spins for a lock, and the thread that polls may hold this very
/// lock: libraries such as UCX poll under a spin lock. Then the first thread spins for all of its time slice,
/// and finds the lock taken again afterwards, for the thread that polls loses the processor nowhere else than
/// here (measured: two such processes on one processor never came to an end, and end after 3 s without
/// yields). So yields become rare if other threads of this process were busy for long meanwhile. They become
/// frequent again if yields are long because of other processes, or if no thread wants the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Idling {
    pub(super) empty_polls: u32,
    pub(super) yield_interval: u32,
    /// Number of the next yields that are observed, which costs system calls.
    pub(super) observed: u8,
}

impl Idling {
    /// The initial state, in which the next empty poll yields.
    pub(crate) const START: Idling = Idling { empty_polls: 0, yield_interval: 1, observed: 0 };

    /// Counts a poll that found nothing, and returns what to do.
    pub(crate) fn polled(&mut self) -> EmptyPoll {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if self.empty_polls < self.yield_interval {
            return EmptyPoll::Return;
        }
        self.empty_polls = 0;
        EmptyPoll::Yield { observe: self.observed > 0 }
    }

    /// Records the result of a yield.
    pub(crate) fn yielded(&mut self, yielded: Yielded) {
        let Yielded { took_ns, others_ns } = yielded;
        let (interval, is_long) = (self.yield_interval, took_ns > LONG_YIELD_NS);
        self.observed = match is_long {
            true => OBSERVED_YIELDS,
            false => self.observed.saturating_sub(1),
        };
        let is_useful = took_ns > USEFUL_YIELD_NS;
        self.yield_interval = if others_ns.is_some_and(|others_ns| others_ns > LONG_YIELD_NS) {
            (interval.max(LONGEST_YIELD_INTERVAL) * 2).min(LONGEST_HELD_UP_INTERVAL)
        } else if interval > LONGEST_YIELD_INTERVAL {
            if is_useful && !is_long { interval } else { interval / 2 }
        } else if is_useful {
            1
        } else {
            interval.saturating_mul(2).min(LONGEST_YIELD_INTERVAL)
        };
    }

    /// Returns the state as one number, for an atomic.
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.empty_polls) << 32 | u64::from(self.observed) << 24 | u64::from(self.yield_interval)
    }

    /// Returns the state that [`Idling::encode`] made a number of.
    pub(crate) fn decode(number: u64) -> Idling {
        let low = number as u32;
        Idling {
            empty_polls: (number >> 32) as u32,
            yield_interval: low & ((1 << 24) - 1),
            observed: (low >> 24) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNNOTICED: Yielded = Yielded { took_ns: USEFUL_YIELD_NS, others_ns: None };
    const USEFUL: Yielded = Yielded { took_ns: USEFUL_YIELD_NS + 1, others_ns: None };
    const LONG: Yielded = Yielded { took_ns: LONG_YIELD_NS + 2, others_ns: None };
    const HELD_UP: Yielded = Yielded { others_ns: Some(LONG_YIELD_NS + 1), ..LONG };
    const OF_OTHER_PROCESSES: Yielded = Yielded { others_ns: Some(LONG_YIELD_NS), ..LONG };

    /// Returns how many polls find nothing until one yields, and whether this yield is observed.
    fn next_yield(idling: &mut Idling) -> (u32, bool) {
        (1..=LONGEST_HELD_UP_INTERVAL)
            .find_map(|polls| match idling.polled() {
                EmptyPoll::Return => None,
                EmptyPoll::Yield { observe } => Some((polls, observe)),
            })
            .unwrap()
    }

    #[test]
    fn yields_become_rare_while_no_other_thread_takes_them() {
        let mut idling = Idling::START;
        for polls in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512] {
            assert_eq!(next_yield(&mut idling), (polls, false));
            idling.yielded(UNNOTICED);
        }
        idling.yielded(USEFUL);
        assert_eq!(next_yield(&mut idling), (1, false), "another thread ran");
    }

    #[test]
    fn yields_go_on_if_they_are_long_because_of_other_processes() {
        let mut idling = Idling::START;
        idling.yielded(LONG);
        for _ in 0..3 {
            assert_eq!(next_yield(&mut idling), (1, true));
            idling.yielded(OF_OTHER_PROCESSES);
        }
    }

    #[test]
    fn yields_that_hold_up_this_process_become_rare() {
        let mut idling = Idling::START;
        idling.yielded(LONG);
        assert_eq!(next_yield(&mut idling), (1, true));
        for shift in [10, 11, 12, 13, 14, 15, 16, 16] {
            idling.yielded(HELD_UP);
            assert_eq!(next_yield(&mut idling), (1 << shift, true));
        }
    }

    #[test]
    fn yields_that_held_up_this_process_come_back_if_another_or_none_wants_the_processor() {
        let mut idling = Idling { observed: 1, yield_interval: 1 << 11, empty_polls: 0 };
        idling.yielded(USEFUL);
        assert_eq!(next_yield(&mut idling), (1 << 11, false), "a thread that does little ran");
        idling.yielded(OF_OTHER_PROCESSES);
        assert_eq!(next_yield(&mut idling), (1 << 10, true));
        idling.yielded(UNNOTICED);
        assert_eq!(next_yield(&mut idling), (512, true));
        idling.yielded(USEFUL);
        assert_eq!(next_yield(&mut idling), (1, true));
    }

    #[test]
    fn observation_ends_some_yields_after_a_long_one() {
        let mut idling = Idling::START;
        idling.yielded(LONG);
        for _ in 0..OBSERVED_YIELDS {
            assert!(next_yield(&mut idling).1);
            idling.yielded(USEFUL);
        }
        assert!(!next_yield(&mut idling).1);
    }

    #[test]
    fn idling_is_a_number_and_back() {
        for observed in [0, OBSERVED_YIELDS] {
            let idling = Idling { empty_polls: u32::MAX, yield_interval: LONGEST_HELD_UP_INTERVAL, observed };
            assert_eq!(Idling::decode(idling.encode()), idling);
        }
    }
}

//! What receive calls have found, and what polls make of it.

use pumice_platform::order;

use super::arrivals::Arrivals;

/// Number of polls in a row that pass over an engine whose port is quiet. A poll that does not pass reads the
/// clock, checks timers and perhaps the socket, and costs as much as four that do.
const MAX_PASSED_OVER: u32 = 7;

/// The state of an engine's receive calls and of the polls that pass over it.
pub(super) struct Reception {
    /// Number of polls in a row that did nothing because the port was quiet.
    passed_over: u32,
    /// Number of short batches that the next step takes at most, before the application gets completions.
    pub(super) most_batches: usize,
    /// The time at which the port was last found empty, in ns.
    pub(super) drained_ns: u64,
    /// True if the last receive found nothing at all: no packet, no order, no message.
    pub(super) was_empty: bool,
    /// The order of requests, where it is recorded or imposed.
    pub(super) arrivals: Option<Box<Arrivals>>,
}

impl Reception {
    /// Returns the state before the first receive call.
    pub(super) fn new() -> Reception {
        Reception {
            passed_over: 0,
            most_batches: 1,
            drained_ns: 0,
            was_empty: false,
            arrivals: order::of_process().map(|order| Box::new(Arrivals::new(order))),
        }
    }

    /// Reports whether one more poll may pass over the engine.
    #[inline]
    pub(super) fn may_pass_over(&self) -> bool {
        self.passed_over < MAX_PASSED_OVER
    }

    /// Records whether a poll has passed over the engine.
    #[inline]
    pub(super) fn polled(&mut self, passes: bool) {
        self.passed_over = if passes { self.passed_over + 1 } else { 0 };
    }

    /// Returns when to check packets that wait for their turn in a replay, in ns.
    #[inline]
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.arrivals.as_ref().and_then(|arrivals| arrivals.deadline_ns())
    }
}

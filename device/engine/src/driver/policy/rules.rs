//! The single rules that the policy consists of, each with its state.

/// Number of peeks in a row that found packets, although the application polls, before the thread watches the
/// port.
const FOUND_IN_A_ROW: u32 = 2;
/// Number of wake-ups without packets, in a row, after which the thread stops watching.
pub(super) const MAX_IDLE_WAKEUPS: u32 = 16;
/// The longest time that the thread watches before it has to find packets by peeking again, in ns.
pub(super) const WATCH_NS: u64 = 50_000_000;
/// Number of wake-ups without packets that one with packets makes up for.
const WAKEUP_CREDIT: u32 = 2;

/// The rule that makes the thread watch the port although the application polls now and then. A program that
/// polls its completion queue and then spins on memory that its peer writes (`ib_write_lat`) leaves packets
/// in the port. Only these packets show that it has stopped polling.
#[derive(Debug, Default)]
pub(super) struct PortWatch {
    found_in_a_row: u32,
    idle_wakeups_left: u32,
    until_ns: u64,
}

impl PortWatch {
    /// Records that the thread stood by and peeked (`found`: there were packets), or saw no reason to peek.
    pub(super) fn peeked(&mut self, found: bool, now_ns: u64) {
        self.found_in_a_row = if found { self.found_in_a_row + 1 } else { 0 };
        if self.found_in_a_row >= FOUND_IN_A_ROW {
            self.idle_wakeups_left = MAX_IDLE_WAKEUPS;
            self.until_ns = now_ns.saturating_add(WATCH_NS);
            self.found_in_a_row = 0;
        }
    }

    /// Records that the thread woke while it watched.
    pub(super) fn woke(&mut self, found: bool, now_ns: u64) {
        self.idle_wakeups_left = match found {
            _ if now_ns >= self.until_ns => 0,
            true => (self.idle_wakeups_left + WAKEUP_CREDIT).min(MAX_IDLE_WAKEUPS),
            false => self.idle_wakeups_left.saturating_sub(1),
        };
    }

    pub(super) fn lasts(&self) -> bool {
        self.idle_wakeups_left > 0
    }
}

/// The longest time that the thread leaves packets to an application whose receive requests run out, in ns.
pub(super) const RESTRAINT_NS: u64 = 250_000_000;

/// The rule that makes the thread leave packets in the port. An application that does not get the processor
/// for a moment has not stopped. If the thread took UC and UD messages for which the application would post
/// receive requests in time, they would be lost; in the socket they are safe.
#[derive(Debug, Default)]
pub(super) struct ReceiveRestraint {
    since_ns: Option<u64>,
}

impl ReceiveRestraint {
    pub(super) fn holds(&mut self, short_of_receives: bool, now_ns: u64) -> bool {
        if !short_of_receives {
            self.since_ns = None;
            return false;
        }
        now_ns.saturating_sub(*self.since_ns.get_or_insert(now_ns)) < RESTRAINT_NS
    }
}

/// The longest time that the thread drives again and again before it sleeps, in ns, if the last packets came
/// that fast.
pub(super) const SPIN_NS: u64 = 30_000;
/// Duration in ns below which a sleep cost more than driving again: a wake-up alone takes 10 µs and more.
pub(super) const SHORT_SLEEP_NS: u64 = 60_000;
/// Duration in ns beyond which a yield gave the processor to a thread that needs it.
pub(super) const LONG_YIELD_NS: u64 = 5_000;

/// The rule that makes the thread drive again before it sleeps. The peer of a passive target waits for its
/// answers: as long as its next requests come at once, a sleep between them is most of their time.
#[derive(Debug, Default)]
pub(super) struct SpinBeforeSleep {
    last_sleep_was_short: bool,
    until_ns: u64,
}

impl SpinBeforeSleep {
    /// Records that driving did something.
    pub(super) fn progressed(&mut self, now_ns: u64) {
        self.until_ns = if self.last_sleep_was_short { now_ns.saturating_add(SPIN_NS) } else { 0 };
    }

    pub(super) fn continues(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Records how long another thread had the processor, in ns.
    pub(super) fn yielded(&mut self, took_ns: u64) {
        if took_ns > LONG_YIELD_NS {
            *self = SpinBeforeSleep::default();
        }
    }

    pub(super) fn slept(&mut self, took_ns: u64) {
        self.last_sleep_was_short = took_ns < SHORT_SLEEP_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_receives_stops_the_thread_for_a_while_only() {
        let mut restraint = ReceiveRestraint::default();
        assert!(!restraint.holds(false, 5));
        assert!(restraint.holds(true, 10) && restraint.holds(true, 9 + RESTRAINT_NS));
        assert!(!restraint.holds(true, 10 + RESTRAINT_NS) && !restraint.holds(true, 99 * RESTRAINT_NS));
        assert!(!restraint.holds(false, 100 * RESTRAINT_NS));
        assert!(restraint.holds(true, 101 * RESTRAINT_NS));
    }

    #[test]
    fn a_spin_ends_by_itself_or_when_another_thread_wants_to_run() {
        let mut spin = SpinBeforeSleep::default();
        spin.progressed(100);
        assert!(!spin.continues(100));
        spin.slept(SHORT_SLEEP_NS - 1);
        spin.progressed(200);
        assert!(spin.continues(199 + SPIN_NS) && !spin.continues(200 + SPIN_NS));
        spin.progressed(300);
        spin.yielded(LONG_YIELD_NS + 1);
        assert!(!spin.continues(300));
        spin.slept(SHORT_SLEEP_NS - 1);
        spin.slept(SHORT_SLEEP_NS);
        spin.progressed(400);
        assert!(!spin.continues(400));
    }
}

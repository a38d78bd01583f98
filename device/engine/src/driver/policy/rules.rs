//! The single rules that the policy is made of, each with what it remembers.

/// Peeks in a row that found packets, although the application polls, before the thread watches the port.
const FOUND_IN_A_ROW: u32 = 2;
/// Wake-ups without packets, in a row, after which the thread stops watching.
pub(super) const VAIN_WAKEUPS: u32 = 16;
/// How long the thread watches at most before it has to find packets by peeking again.
pub(super) const WATCH_NS: u64 = 50_000_000;
/// How many wake-ups without packets a wake-up with packets makes up for.
const WORTH: u32 = 2;

/// Whether the thread watches the port although the application polls now and then. A program that polls its
/// completion queue and then spins on memory that its peer writes (`ib_write_lat`) leaves packets in the
/// port. That it has stopped polling shows only in these packets.
#[derive(Debug, Default)]
pub(super) struct PortWatch {
    found_in_a_row: u32,
    vain_wakeups_left: u32,
    until_ns: u64,
}

impl PortWatch {
    /// The thread stood by and peeked (`found`: there were packets), or saw no reason to peek.
    pub(super) fn peeked(&mut self, found: bool, now_ns: u64) {
        self.found_in_a_row = if found { self.found_in_a_row + 1 } else { 0 };
        if self.found_in_a_row >= FOUND_IN_A_ROW {
            self.vain_wakeups_left = VAIN_WAKEUPS;
            self.until_ns = now_ns.saturating_add(WATCH_NS);
            self.found_in_a_row = 0;
        }
    }

    /// The thread woke while it watched.
    pub(super) fn woke(&mut self, found: bool, now_ns: u64) {
        self.vain_wakeups_left = match found {
            _ if now_ns >= self.until_ns => 0,
            true => (self.vain_wakeups_left + WORTH).min(VAIN_WAKEUPS),
            false => self.vain_wakeups_left.saturating_sub(1),
        };
    }

    pub(super) fn lasts(&self) -> bool {
        self.vain_wakeups_left > 0
    }
}

/// How long the thread leaves packets to the application whose receive requests run out.
pub(super) const RESTRAINT_NS: u64 = 250_000_000;

/// Whether the thread leaves packets in the port. An application that does not get the processor for a moment
/// has not stopped. To take UC and UD messages for which it would post receive requests in time would lose
/// them; in the socket they are safe.
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

/// How long the thread tries again before it sleeps, when the last packets came that fast.
pub(super) const SPIN_NS: u64 = 30_000;
/// A sleep that ended sooner than this cost more than another try: a wake-up alone takes 10 µs and more.
pub(super) const SHORT_SLEEP_NS: u64 = 60_000;
/// A yield that took longer than this gave the processor to a thread that needs it.
pub(super) const LONG_YIELD_NS: u64 = 5_000;

/// Whether the thread drives again before it sleeps. The peer of a passive target waits for its answers: as
/// long as its next requests come at once, a sleep between them is most of their time.
#[derive(Debug, Default)]
pub(super) struct SpinBeforeSleep {
    last_sleep_was_short: bool,
    until_ns: u64,
}

impl SpinBeforeSleep {
    /// Driving did something.
    pub(super) fn progressed(&mut self, now_ns: u64) {
        self.until_ns = if self.last_sleep_was_short { now_ns.saturating_add(SPIN_NS) } else { 0 };
    }

    pub(super) fn goes_on(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Another thread had the processor for this long.
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
        assert!(!spin.goes_on(100));
        spin.slept(SHORT_SLEEP_NS - 1);
        spin.progressed(200);
        assert!(spin.goes_on(199 + SPIN_NS) && !spin.goes_on(200 + SPIN_NS));
        spin.progressed(300);
        spin.yielded(LONG_YIELD_NS + 1);
        assert!(!spin.goes_on(300));
        spin.slept(SHORT_SLEEP_NS - 1);
        spin.slept(SHORT_SLEEP_NS);
        spin.progressed(400);
        assert!(!spin.goes_on(400));
    }
}

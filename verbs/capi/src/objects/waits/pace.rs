//! How often the thread looks.

use std::time::Duration;

use crate::ground::gate;
use crate::ground::waits;

/// How often it looks while the device gets on.
const PERIOD: Duration = Duration::from_millis(250);
/// The same while nothing moves, and what is posted may complete.
const REST: Duration = Duration::from_millis(500);
/// Looks at which nothing can be waited for until calls of the program are to wake it, so that a program that
/// polls an empty queue does not do so all the time; and looks until it sleeps.
const LOOKS: (u32, u32) = (8, 9);

/// The pace of the thread.
pub(super) struct Pace {
    /// `None`: until it is stirred.
    period: Option<Duration>,
    /// Looks at which nothing can be waited for.
    idle: u32,
}

impl Pace {
    pub(super) const fn new() -> Pace {
        Pace { period: Some(PERIOD), idle: 0 }
    }

    /// Rests. Whether another process asks what is waited for.
    pub(super) fn rest(&mut self) -> bool {
        let woken = waits::rest(self.period);
        if woken.is_stirred {
            self.idle = 0;
        }
        woken.is_asked
    }

    /// A look is over. `is_idle`: nothing can be waited for; `is_at_rest`: nothing moves.
    pub(super) fn next(&mut self, is_idle: bool, is_at_rest: bool) {
        self.idle = if is_idle { self.idle.saturating_add(1) } else { 0 };
        waits::dozes(self.idle >= LOOKS.0);
        if self.idle == LOOKS.0 || self.idle == 0 {
            gate::look_anew();
        }
        self.period = match is_at_rest {
            _ if self.idle >= LOOKS.1 => None,
            true => Some(REST),
            false => Some(PERIOD),
        };
    }
}

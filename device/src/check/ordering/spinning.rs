//! Programs that look at memory in order to know that a WRITE has come.

use super::super::checker::{Checker, Found, related};
use super::super::kind::WRITE_POLLED_IN_MEMORY;

/// How often the calling thread has waited in the operating system since it began.
pub type Switches = fn() -> u64;

/// Times in sequence that an answer follows a WRITE, before that is told.
const TURNS: u32 = 64;
/// Adapters and processors write so many aligned bytes at once.
const MAX_WORD_BYTES: u64 = 8;

/// WRITEs that come to a queue pair, and what the program posts on it in turn.
#[derive(Debug, Default)]
pub(super) struct Echo {
    /// Bytes of the newest WRITE.
    length_bytes: u64,
    /// One has come since the last post.
    is_written: bool,
    turns: u32,
    /// Those at which the thread has not waited in the operating system, which could have told it.
    calm: u32,
    /// When the program was last told of something else.
    told: u64,
    /// At the last post.
    switches: u64,
    is_told: bool,
}

impl Echo {
    pub(super) fn begins(&mut self, length_bytes: u64) {
        self.length_bytes = length_bytes;
    }

    /// A WRITE without an immediate has come.
    pub(super) fn written(&mut self, told: u64) {
        let is_turn = self.length_bytes > MAX_WORD_BYTES && !self.is_written && self.told == told;
        if !is_turn {
            (self.turns, self.calm, self.told) = (0, 0, told);
        }
        self.is_written = self.length_bytes > MAX_WORD_BYTES;
    }

    /// The program posts. True if that has become a habit.
    fn posted(&mut self, told: u64, switches: u64) -> bool {
        let is_turn = std::mem::replace(&mut self.is_written, false) && self.told == told;
        let is_calm = std::mem::replace(&mut self.switches, switches) == switches;
        if !is_turn {
            (self.turns, self.calm) = (0, 0);
            return false;
        }
        self.turns = self.turns.saturating_add(1);
        self.calm = self.calm.saturating_add(is_calm.into());
        let is_habit = self.turns >= TURNS && self.calm.saturating_mul(4) >= self.turns.saturating_mul(3);
        is_habit && !std::mem::replace(&mut self.is_told, true)
    }
}

impl Checker {
    /// `switches` tells how often the calling thread has waited. Without it, programs that look at memory in
    /// order to know of WRITEs are not found.
    #[must_use]
    pub fn with_switches(mut self, switches: Switches) -> Checker {
        self.ordering.switches = Some(switches);
        self
    }

    pub(super) fn look_at_spinning(&mut self, number: u32) {
        let (told, Some(switches)) = (self.ordering.told, self.ordering.switches) else { return };
        let Some(qp) = self.ordering.qps.get_mut(&number) else { return };
        if qp.echo.length_bytes == 0 || !qp.echo.posted(told, switches()) {
            return;
        }
        let (turns, bytes) = (qp.echo.turns, qp.echo.length_bytes);
        let place = self.here();
        let object = self.name_of(number);
        let made = self.qps.get(&number).map(|qp| qp.made.clone()).unwrap_or_default();
        let numbers = format!(
            "{turns} times in sequence the program posted on {object} right after a WRITE had come to it (the \
             last of {bytes} bytes); no completion and no system call had told it"
        );
        let related = vec![related(format!("{object} was made here"), &made)];
        self.found(&WRITE_POLLED_IN_MEMORY, Found { object, numbers, place, related });
    }
}

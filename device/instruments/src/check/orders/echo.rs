//! WRITEs that come, and what the program posts right after them.

use crate::check::means::Switches;

/// Times in sequence that an answer follows a WRITE, before that is told.
pub(in crate::check) const TURNS: u32 = 64;
/// Of these the first ones, before it is looked whether the thread waits: looking costs a system call.
const FIRST_TURNS: u32 = 8;
/// Adapters and processors write so many aligned bytes at once.
const MAX_WORD_BYTES: u64 = 8;

/// WRITEs that come to a queue pair, and what the program posts on it in turn.
#[derive(Debug, Default)]
pub(in crate::check) struct Echo {
    /// Bytes of the newest WRITE.
    pub(in crate::check) length_bytes: u64,
    /// One has come since the last post.
    pub(in crate::check) is_written: bool,
    pub(in crate::check) turns: u32,
    /// Those at which the thread has not waited in the operating system, which could have told it. The first
    /// turns are not looked at.
    pub(in crate::check) calm: u32,
    /// When the program was last told of something else.
    pub(in crate::check) told: u64,
    /// At the last post that was looked at.
    pub(in crate::check) switches: u64,
    pub(in crate::check) is_told: bool,
}

impl Echo {
    pub(in crate::check) fn begins(&mut self, length_bytes: u64) {
        self.length_bytes = length_bytes;
    }

    /// A WRITE without an immediate has come.
    pub(in crate::check) fn written(&mut self, told: u64) {
        let is_turn = self.length_bytes > MAX_WORD_BYTES && !self.is_written && self.told == told;
        if !is_turn {
            (self.turns, self.calm, self.told) = (0, 0, told);
        }
        self.is_written = self.length_bytes > MAX_WORD_BYTES;
    }

    /// The program posts. True if that has become a habit.
    pub(in crate::check) fn posted(&mut self, told: u64, switches: Switches) -> bool {
        let is_turn = std::mem::replace(&mut self.is_written, false) && self.told == told;
        if !is_turn {
            (self.turns, self.calm) = (0, 0);
            return false;
        }
        self.turns = self.turns.saturating_add(1);
        if self.is_told || self.turns < FIRST_TURNS {
            return false;
        }
        let switches = switches();
        let is_calm = std::mem::replace(&mut self.switches, switches) == switches;
        self.calm = self.calm.saturating_add(is_calm.into());
        let is_habit = self.turns >= TURNS && self.calm.saturating_mul(4) >= self.turns.saturating_mul(3);
        is_habit && !std::mem::replace(&mut self.is_told, true)
    }
}

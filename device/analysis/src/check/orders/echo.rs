//! WRITEs that come, and the program's posts right after them.

use crate::check::callbacks::WaitCounter;

/// Number of times in sequence that an answer follows a WRITE before that is reported.
pub(in crate::check) const TURNS: u32 = 64;
/// Number of turns before the check reads whether the thread waits, which costs a system call.
const FIRST_TURNS: u32 = 8;
/// Number of aligned bytes that adapters and processors write at once.
const MAX_WORD_BYTES: u64 = 8;

/// The WRITEs that come to a queue pair, and the program's posts on it in turn.
#[derive(Debug, Default)]
pub(in crate::check) struct Echo {
    /// Length of the newest WRITE, in bytes.
    pub(in crate::check) length_bytes: u64,
    /// Later WRITEs of the queue pair may be stored before the newest one of more than a word.
    lets_pass: bool,
    /// A WRITE of one word came behind a longer one that it may pass: a flag.
    is_flag: bool,
    /// A WRITE has come since the last post.
    pub(in crate::check) is_written: bool,
    pub(in crate::check) turns: u32,
    /// Number of turns at which the thread has not waited in the operating system, which could have told it.
    /// The first turns are not examined.
    pub(in crate::check) calm: u32,
    /// Time mark at which the program was last told of something else.
    pub(in crate::check) notified: u64,
    /// Number of the thread's waits at the last post that was examined.
    pub(in crate::check) switches: u64,
    pub(in crate::check) is_reported: bool,
}

impl Echo {
    pub(in crate::check) fn begins(&mut self, length_bytes: u64, lets_pass: bool) {
        self.is_flag = self.is_written && self.lets_pass && length_bytes <= MAX_WORD_BYTES;
        if !self.is_flag {
            (self.length_bytes, self.lets_pass) = (length_bytes, lets_pass);
        }
    }

    /// Handles a WRITE without an immediate that has come.
    pub(in crate::check) fn written(&mut self, notified: u64) {
        if self.is_flag && self.notified == notified {
            // The flag belongs to the turn of the data before it.
            return;
        }
        let is_turn = self.length_bytes > MAX_WORD_BYTES && !self.is_written && self.notified == notified;
        if !is_turn {
            (self.turns, self.calm, self.notified) = (0, 0, notified);
        }
        self.is_written = self.length_bytes > MAX_WORD_BYTES;
    }

    /// Handles a post of the program. Returns true if posting after WRITEs has become a habit.
    pub(in crate::check) fn posted(&mut self, notified: u64, switches: WaitCounter) -> bool {
        let is_turn = std::mem::replace(&mut self.is_written, false) && self.notified == notified;
        if !is_turn {
            (self.turns, self.calm) = (0, 0);
            return false;
        }
        self.turns = self.turns.saturating_add(1);
        if self.is_reported || self.turns < FIRST_TURNS {
            return false;
        }
        let switches = switches();
        let is_calm = std::mem::replace(&mut self.switches, switches) == switches;
        self.calm = self.calm.saturating_add(is_calm.into());
        let is_habit = self.turns >= TURNS && self.calm.saturating_mul(4) >= self.turns.saturating_mul(3);
        is_habit && !std::mem::replace(&mut self.is_reported, true)
    }
}

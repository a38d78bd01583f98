//! What a program tells the supervisor of its world (`pumice world`), if it runs in one.
//!
//! The supervisor sees system calls. A call of verbs makes none as a rule, so it says here that another
//! thread may go on, or that it has found nothing: by a page of memory, and by a call if the page says so.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{environment, system_call, world_page};

/// The variable that says that the program runs in a world.
pub const VARIABLE: &str = "PUMICE_WORLD";

/// Kinds of hints.
const POINT: u64 = 0;
const IN_VAIN: u64 = 1;

/// Whether the program runs in a world.
pub fn is_here() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static IS_HERE: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = IS_HERE.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == YES;
    }
    let is_here = environment::variable(VARIABLE).is_some();
    IS_HERE.store(if is_here { YES } else { NO }, Ordering::Relaxed);
    is_here
}

/// Another thread may go on here.
pub fn point() {
    if !world_page::point() {
        system_call::hint(POINT);
    }
}

/// The thread has looked for something, and found nothing.
pub fn looked_in_vain() {
    if !world_page::looked_in_vain() {
        system_call::hint(IN_VAIN);
    }
}

/// Looks at an empty socket in a row that may be left out: what write(2) sends to it is not counted.
const MOST_LEFT_OUT: u32 = 32;

/// A socket in a world, where a look at it costs two stops: found empty, it stays so until a call sends.
#[derive(Debug, Default)]
pub struct FoundEmpty {
    /// The calls that had sent by then.
    sent: Option<u64>,
    left_out: u32,
}

impl FoundEmpty {
    /// Whether a look would find nothing. Outside of a world nothing is known.
    #[inline]
    pub fn is_still_empty(&mut self) -> bool {
        self.sent.is_some() && self.is_empty_at(world_page::sent())
    }

    /// The socket was looked at.
    #[inline]
    pub fn looked(&mut self, found: bool) {
        *self = FoundEmpty { sent: if found { None } else { world_page::sent() }, left_out: 0 };
    }

    fn is_empty_at(&mut self, sent: Option<u64>) -> bool {
        self.left_out += 1;
        self.sent == sent && self.left_out <= MOST_LEFT_OUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_stays_empty_until_a_call_sends_and_is_looked_at_now_and_then() {
        let mut socket = FoundEmpty::default();
        assert!(!socket.is_still_empty(), "it was not looked at");
        socket.sent = Some(7);
        assert!(socket.is_empty_at(Some(7)) && !socket.is_empty_at(Some(8)));
        let mut socket = FoundEmpty { sent: Some(7), left_out: 0 };
        let looks = (0..100).take_while(|_| socket.is_empty_at(Some(7))).count();
        assert_eq!(looks, MOST_LEFT_OUT as usize);
    }
}

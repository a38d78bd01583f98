//! WRITEs on one queue pair, and the messages that tell of them on another.

use pumice_ground::call_stack::Stack;

/// Times in sequence that a message follows WRITEs of another queue pair, before that is told. Messages that
/// have nothing to do with the WRITEs do not take turns with them for so long.
pub(in crate::check) const NOTICE_TURNS: u32 = 8;

/// The WRITEs and the messages to one peer.
#[derive(Debug, Default)]
pub(in crate::check) struct Notices {
    /// The newest WRITE without a message after it.
    pub(in crate::check) written: Option<Written>,
    /// The queue pairs of the WRITEs and of the messages.
    pub(in crate::check) pair: (u32, u32),
    pub(in crate::check) turns: u32,
    pub(in crate::check) is_told: bool,
}

#[derive(Debug)]
pub(in crate::check) struct Written {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) stack: Stack,
}

impl Notices {
    /// The peer may have told that the WRITEs have arrived.
    pub(in crate::check) fn heard(&mut self) {
        self.written = None;
    }

    /// A message on `number`; `is_over`: the program knows that the WRITE before it is over. Returns the
    /// WRITE if the message is one too many.
    pub(in crate::check) fn told_of(
        &mut self,
        number: u32,
        is_over: impl Fn(&Written) -> bool,
    ) -> Option<Written> {
        let Some(written) = self.written.take() else {
            if self.pair.1 == number {
                self.turns = 0;
            }
            return None;
        };
        let pair = (written.number, number);
        if written.number == number || is_over(&written) {
            self.turns = 0;
            return None;
        }
        self.turns = if pair == self.pair { self.turns + 1 } else { 1 };
        self.pair = pair;
        let is_one_too_many = self.turns >= NOTICE_TURNS && !std::mem::replace(&mut self.is_told, true);
        is_one_too_many.then_some(written)
    }
}

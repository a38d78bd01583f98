//! WRITEs that came to relaxed regions, and the messages of the same peer on another queue pair.

use super::notices::NOTICE_TURNS;

/// The state of one peer's WRITEs and messages.
#[derive(Debug, Default)]
pub(in crate::check) struct ArrivedWrites {
    /// Newest WRITE whose data was not yet shown to be there: its queue pair, and the key.
    written: Option<(u32, u32)>,
    /// Queue pairs of the WRITEs and of the messages.
    pair: (u32, u32),
    turns: u32,
    is_reported: bool,
}

impl ArrivedWrites {
    /// Notes that a WRITE begins to come to a relaxed region.
    pub(in crate::check) fn written(&mut self, number: u32, rkey: u32) {
        self.written = Some((number, rkey));
    }

    /// Notes that something has come on a queue pair that shows all data before it.
    pub(in crate::check) fn shown(&mut self, number: u32) {
        if self.written.is_some_and(|(own, _)| own == number) {
            self.written = None;
        }
        if self.pair.0 == number {
            self.turns = 0;
        }
    }

    /// Handles a message that the program has polled on a queue pair that does not show the data. Returns the
    /// queue pair of the WRITE and its key if the message is one too many.
    pub(in crate::check) fn message_polled(&mut self, number: u32) -> Option<(u32, u32)> {
        let Some((of, rkey)) = self.written.take() else {
            if self.pair.1 == number {
                self.turns = 0;
            }
            return None;
        };
        let pair = (of, number);
        self.turns = if pair == self.pair { self.turns + 1 } else { 1 };
        self.pair = pair;
        let is_one_too_many = self.turns >= NOTICE_TURNS && !std::mem::replace(&mut self.is_reported, true);
        is_one_too_many.then_some((of, rkey))
    }
}

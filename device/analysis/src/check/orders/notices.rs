//! WRITEs on one queue pair, and the messages that tell of them on another: of this process, and of peers.

use pumice_platform::call_stack::Stack;

/// Number of times in sequence that a message follows WRITEs of another queue pair before that is reported.
/// Messages that have nothing to do with the WRITEs do not take turns with them for so long.
pub(in crate::check) const NOTICE_TURNS: u32 = 8;

/// The WRITEs and the messages to one peer.
#[derive(Debug, Default)]
pub(in crate::check) struct Notices {
    /// Newest WRITE without a message after it.
    pub(in crate::check) written: Option<LatestWrite>,
    /// Queue pairs of the WRITEs and of the messages.
    pub(in crate::check) pair: (u32, u32),
    pub(in crate::check) turns: u32,
    pub(in crate::check) is_reported: bool,
}

#[derive(Debug)]
pub(in crate::check) struct LatestWrite {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) stack: Stack,
}

impl Notices {
    /// Notes that the peer may have told that the WRITEs have arrived.
    pub(in crate::check) fn note_peer_progress(&mut self) {
        self.written = None;
    }

    /// Handles a message on the queue pair `number`. `is_over` returns whether the program knows that the
    /// WRITE before it is over. Returns the WRITE if the message is one too many.
    pub(in crate::check) fn message_sent(
        &mut self,
        number: u32,
        is_over: impl Fn(&LatestWrite) -> bool,
    ) -> Option<LatestWrite> {
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
        let is_one_too_many = self.turns >= NOTICE_TURNS && !std::mem::replace(&mut self.is_reported, true);
        is_one_too_many.then_some(written)
    }
}

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

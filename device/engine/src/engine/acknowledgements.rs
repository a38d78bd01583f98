//! When acknowledgements leave: at once, after completions, or with the application's reply.

use pumice_platform::outside;

use super::reply::ReplyHabit;

/// Number of batches after which acknowledgements leave although completions keep coming.
const DEFERRED_BATCHES: u32 = 16;

/// The time at which responses may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// Responses leave now.
    Now,
    /// Acknowledgements wait: the application is about to see the completions of this batch, and an ACK sent
    /// first would delay it by a system call.
    AfterCompletions,
    /// Acknowledgements wait for a reply after these completions, if the application has the habit of
    /// answering what arrives.
    WithReply,
}

/// The acknowledgements of a device that wait for its application.
pub(super) struct Acknowledgements {
    /// Number of batches since acknowledgements began to wait for the application.
    deferred_batches: u32,
    /// The application's habit of replying.
    pub(super) reply: ReplyHabit,
    /// True in a world with a performance model. Acknowledgements leave at once there, as an adapter sends
    /// them before the application has seen the message.
    is_modelled: bool,
}

impl Acknowledgements {
    /// Returns a device's acknowledgements, none of which waits.
    pub(super) fn new() -> Acknowledgements {
        Acknowledgements {
            deferred_batches: 0,
            reply: ReplyHabit::default(),
            is_modelled: outside::world::has_model(),
        }
    }

    /// Determines whether acknowledgements wait when the other responses of a batch leave.
    #[inline]
    pub(super) fn defer(&mut self, acknowledge: Acknowledge, now_ns: u64) -> bool {
        let after_completions =
            acknowledge == Acknowledge::AfterCompletions && self.deferred_batches < DEFERRED_BATCHES;
        self.deferred_batches = if after_completions { self.deferred_batches + 1 } else { 0 };
        let wait = !self.is_modelled
            && (after_completions || (acknowledge == Acknowledge::WithReply && self.reply.holds(now_ns)));
        if !wait {
            self.reply.released();
        }
        wait
    }

    /// Records that a step has taken `more` batches than the one that [`Acknowledgements::defer`] counts.
    #[inline]
    pub(super) fn took_more(&mut self, more: u32) {
        self.deferred_batches += more;
    }

    /// Records that the acknowledgement that waited has left with a request.
    #[inline]
    pub(super) fn left_with_request(&mut self) {
        self.deferred_batches = 0;
        self.reply.released();
    }
}

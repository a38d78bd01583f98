//! Acknowledgements that wait for a reply which the application is about to post.
//!
//! A WRITE completes nothing at its receiver. A program that spins on memory which its peer writes, and then
//! writes back (`ib_write_lat`), has its peer wait for both the ACK and the reply. Sent at once, the ACK
//! costs two system calls and makes the peer leave its completion queue for its own memory, where only the
//! background thread can bring it the reply. Sent with the reply, it lets both sides find everything in one
//! poll. Whether a process does this shows in what it did before.
//!
//! What arrives beside a completion counts as well: a background thread that needs 15 µs to wake up finds the
//! ACK of the last WRITE and the next WRITE at once. If it sent its ACK then, both sides would go on like
//! this for hundreds of messages.

/// The longest wait of an ACK, in ns.
const HOLD_NS: u64 = 100_000;
/// The longest time after which a posted request counts as a reply, in ns.
const REPLY_NS: u64 = 10_000_000;
/// Number of replies in a row that make a habit.
const HABIT: u32 = 4;
/// The largest count of replies.
const LONGEST: u32 = 8;
/// The amount by which a wait of an ACK without a reply reduces the count.
const UNREPLIED_HOLD_COST: u32 = 2;

/// The recognised habit of an application to answer what arrives.
#[derive(Debug, Default)]
pub(crate) struct ReplyHabit {
    /// The arrival time of a message after which nothing has been posted yet, in ns.
    arrived_ns: Option<u64>,
    /// Number of times in a row that something was posted after a message, up to [`LONGEST`].
    replies: u32,
    hold_until_ns: Option<u64>,
}

impl ReplyHabit {
    /// Records that a message came that has to be acknowledged.
    pub(crate) fn arrived(&mut self, now_ns: u64) {
        if self.arrived_ns.replace(now_ns).is_some() && self.hold_until_ns.is_none() {
            // The message before it had no reply.
            self.replies = self.replies.saturating_sub(1);
        }
    }

    /// Records that the application posted a send request: held acknowledgements leave with it.
    pub(crate) fn posted(&mut self, now_ns: u64) {
        if let Some(arrived_ns) = self.arrived_ns.take() {
            let replied = now_ns.saturating_sub(arrived_ns) < REPLY_NS;
            self.replies = if replied { (self.replies + 1).min(LONGEST) } else { 0 };
        }
        self.hold_until_ns = None;
    }

    /// Reports whether acknowledgements wait now.
    pub(crate) fn holds(&mut self, now_ns: u64) -> bool {
        if self.hold_until_ns.is_none() && self.replies >= HABIT && self.arrived_ns == Some(now_ns) {
            self.hold_until_ns = Some(now_ns.saturating_add(HOLD_NS));
        }
        self.hold_until_ns.is_some()
    }

    /// Records that the acknowledgements have left for another reason.
    pub(crate) fn released(&mut self) {
        self.hold_until_ns = None;
    }

    /// Ends the wait of acknowledgements that have waited long enough.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        if self.hold_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.hold_until_ns = None;
            self.arrived_ns = None;
            self.replies = self.replies.saturating_sub(UNREPLIED_HOLD_COST);
        }
    }

    /// Returns until when acknowledgements wait, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.hold_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_a_habit() -> ReplyHabit {
        let mut habit = ReplyHabit::default();
        for round in 0..u64::from(HABIT) {
            habit.arrived(round * 10);
            assert!(!habit.holds(round * 10));
            habit.posted(round * 10 + 5);
        }
        habit
    }

    #[test]
    fn an_acknowledgement_waits_where_replies_have_followed_and_for_a_while_only() {
        let mut habit = with_a_habit();
        habit.arrived(1000);
        assert!(habit.holds(1000));
        habit.expire(999 + HOLD_NS);
        assert!(habit.holds(999 + HOLD_NS));
        assert_eq!(habit.deadline_ns(), Some(1000 + HOLD_NS));
        habit.posted(2000);
        assert!(!habit.holds(2000), "it leaves with the reply");
        habit.arrived(3000);
        assert!(habit.holds(3000));
        habit.expire(3000 + HOLD_NS);
        assert!(!habit.holds(3000 + HOLD_NS), "not longer");
        assert_eq!(habit.deadline_ns(), None);
        habit.arrived(900_000);
        assert!(!habit.holds(900_000), "it waited in vain");
    }

    #[test]
    fn a_process_that_only_receives_acknowledges_at_once() {
        let mut habit = ReplyHabit::default();
        for round in 0..100 {
            habit.arrived(round);
            assert!(!habit.holds(round));
        }
        let mut habit = with_a_habit();
        habit.arrived(1000);
        habit.posted(1000 + REPLY_NS);
        habit.arrived(20_000_000);
        assert!(!habit.holds(20_000_000), "that was no reply");
    }
}

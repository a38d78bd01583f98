//! The time of events that come in batches: packets that leave or arrive together, and their completions.
//! Reading the clock for each would cost more than recording it.

use pumice_transport::event::Topic;

/// Most events that share one time.
const EVENTS: u32 = 16;

/// The time of the packets that a queue pair sends, or that arrive together.
#[derive(Debug, Default)]
pub(crate) struct BatchTime {
    at_ns: u64,
    /// Number of events that may still share this time.
    events_left: u32,
}

impl BatchTime {
    /// Ends the batch: the next event belongs to another one.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.events_left = 0;
    }

    /// Continues with packets that leave, in a turn that began at this time: they share the time of the last
    /// event in it. Packets that arrive have a time of their own, which is later than when they were sent.
    #[inline]
    pub(crate) fn continue_at(&mut self, now_ns: u64) {
        self.at_ns = self.at_ns.max(now_ns);
        self.events_left = EVENTS;
    }

    /// Returns the time that an event of this topic shares with those before it, if it shares one.
    #[inline(always)]
    pub(super) fn shared(&mut self, topic: Topic) -> Option<u64> {
        let is_of_batches = matches!(topic, Topic::Packets | Topic::Answers | Topic::Completions);
        if !is_of_batches || self.events_left == 0 {
            return None;
        }
        self.events_left -= 1;
        Some(self.at_ns)
    }

    /// Returns the time of an event of this topic. `now_ns` reads the clock: packets and completions share
    /// its result with those before them; every other event has a time of its own.
    #[inline]
    pub(super) fn of(&mut self, topic: Topic, now_ns: impl FnOnce() -> u64) -> u64 {
        if let Some(at_ns) = self.shared(topic) {
            return at_ns;
        }
        self.at_ns = now_ns();
        self.events_left = EVENTS - 1;
        self.at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_batch_share_a_time_with_their_completions_and_nothing_else_does() {
        let mut batch_time = BatchTime::default();
        let mut reads = 0;
        let mut at = |batch_time: &mut BatchTime, topic| {
            batch_time.of(topic, || {
                reads += 1;
                reads
            })
        };
        assert_eq!((1..EVENTS).map(|_| at(&mut batch_time, Topic::Packets)).max(), Some(1));
        assert_eq!(at(&mut batch_time, Topic::Completions), 1);
        assert_eq!(at(&mut batch_time, Topic::Packets), 2, "a long batch takes time");
        assert_eq!(at(&mut batch_time, Topic::States), 3);
        assert_eq!(at(&mut batch_time, Topic::States), 4);
        assert_eq!(at(&mut batch_time, Topic::Packets), 4, "no packet is older than what happened before it");
        batch_time.end();
        assert_eq!(at(&mut batch_time, Topic::Packets), 5);
        batch_time.continue_at(4);
        assert_eq!(at(&mut batch_time, Topic::Packets), 5, "no earlier than what was before");
        batch_time.continue_at(9);
        assert_eq!(at(&mut batch_time, Topic::Answers), 9);
    }
}

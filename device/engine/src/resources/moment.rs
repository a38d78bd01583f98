//! When what comes in batches happened: packets that leave or arrive together, and the completions that they
//! bring. To read the clock for each would cost more than to note it.

use pumice_transport::event::Topic;

/// Events that have one time at most.
const EVENTS: u32 = 16;

/// The time of the packets that a queue pair sends, or that arrive together.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    at_ns: u64,
    /// Events that have this time, too.
    events_left: u32,
}

impl Moment {
    /// What follows belongs to another batch.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.events_left = 0;
    }

    /// Packets that leave follow, in a turn that began at this time: they have the time of what happened last
    /// in it. Packets that arrive have a time of their own, which is later than when they were sent.
    #[inline]
    pub(crate) fn goes_on(&mut self, now_ns: u64) {
        self.at_ns = self.at_ns.max(now_ns);
        self.events_left = EVENTS;
    }

    /// The time that an event of this topic has with those before it, if it shares one.
    #[inline(always)]
    pub(super) fn shared(&mut self, topic: Topic) -> Option<u64> {
        let is_of_batches = matches!(topic, Topic::Packets | Topic::Answers | Topic::Completions);
        if !is_of_batches || self.events_left == 0 {
            return None;
        }
        self.events_left -= 1;
        Some(self.at_ns)
    }

    /// The time of an event of this topic. `now_ns` reads the clock: packets and completions share what it
    /// says with those before them; all else has a time of its own.
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
        let mut moment = Moment::default();
        let mut reads = 0;
        let mut at = |moment: &mut Moment, topic| {
            moment.of(topic, || {
                reads += 1;
                reads
            })
        };
        assert_eq!((1..EVENTS).map(|_| at(&mut moment, Topic::Packets)).max(), Some(1));
        assert_eq!(at(&mut moment, Topic::Completions), 1);
        assert_eq!(at(&mut moment, Topic::Packets), 2, "a long batch takes time");
        assert_eq!(at(&mut moment, Topic::States), 3);
        assert_eq!(at(&mut moment, Topic::States), 4);
        assert_eq!(at(&mut moment, Topic::Packets), 4, "no packet is older than what happened before it");
        moment.end();
        assert_eq!(at(&mut moment, Topic::Packets), 5);
        moment.goes_on(4);
        assert_eq!(at(&mut moment, Topic::Packets), 5, "no earlier than what was before");
        moment.goes_on(9);
        assert_eq!(at(&mut moment, Topic::Answers), 9);
    }
}

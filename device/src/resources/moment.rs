//! When the packets of a batch went or came: to read the clock for each of them would cost more than to note
//! it.

use pumice_transport::event::Topic;

/// Packets that have one time at most.
const PACKETS: u32 = 16;

/// The time of the packets that a queue pair sends, or that arrive together.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    at_ns: u64,
    /// Packets that have this time, too.
    packets_left: u32,
}

impl Moment {
    /// Packets that follow belong to another batch.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.packets_left = 0;
    }

    /// The time of an event of this topic. `now_ns` reads the clock: packets share what it says with those
    /// before them; all else has a time of its own.
    #[inline]
    pub(super) fn of(&mut self, topic: Topic, now_ns: impl FnOnce() -> u64) -> u64 {
        if topic == Topic::Packets && self.packets_left > 0 {
            self.packets_left -= 1;
        } else {
            self.at_ns = now_ns();
            self.packets_left = PACKETS - 1;
        }
        self.at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_batch_share_a_time_and_nothing_else_does() {
        let mut moment = Moment::default();
        let mut reads = 0;
        let mut at = |moment: &mut Moment, topic| {
            moment.of(topic, || {
                reads += 1;
                reads
            })
        };
        assert_eq!((0..PACKETS).map(|_| at(&mut moment, Topic::Packets)).max(), Some(1));
        assert_eq!(at(&mut moment, Topic::Packets), 2, "a long batch takes time");
        assert_eq!(at(&mut moment, Topic::Completions), 3);
        assert_eq!(at(&mut moment, Topic::Completions), 4);
        assert_eq!(at(&mut moment, Topic::Packets), 4, "no packet is older than what happened before it");
        moment.end();
        assert_eq!(at(&mut moment, Topic::Packets), 5);
    }
}

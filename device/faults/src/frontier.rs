//! The progress of one direction of a connection, if only the plan loses packets.
//!
//! A sender that goes back sends packets again, and how many depends on time. But exactly one packet can be
//! accepted next: the one at the frontier. The plan is asked only about a packet at the frontier. If the plan
//! loses it, the frontier stays, and the plan is asked again about the next transmission of the same packet;
//! a packet beyond a lost one is out of sequence, and a packet before the frontier was accepted already. So a
//! plan is asked about the same packets in the same order, however often and in which groups they are sent.

use std::collections::BTreeMap;

/// Extends a number of 24 bits to the one nearest to `near` that does not wrap.
pub fn unwrap24(near: u64, low: u32) -> u64 {
    near.saturating_add_signed(distance24(near, low))
}

/// Returns the distance from a number of 24 bits to another one near it.
fn distance24(from: u64, to: u32) -> i64 {
    let difference = to.wrapping_sub(from as u32) << 8;
    i64::from(difference as i32 >> 8)
}

/// A transmission of a packet that the plan is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketAttempt {
    /// Number of packets before this one.
    pub packet: u64,
    /// Number of the transmission, from 1.
    pub transmission: u32,
}

/// The progress of requests of a reliable service, which are accepted one after the other.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    next: u64,
    lost: u32,
}

impl Requests {
    /// Returns the progress of requests of which this one is seen first.
    pub fn beginning_at(relative_psn: u32) -> Requests {
        Requests { next: relative_psn.into(), lost: 0 }
    }

    /// Returns the transmission of a packet with this relative PSN. `None` means that the plan is not asked
    /// about it.
    pub fn attempt(&self, relative_psn: u32) -> Option<PacketAttempt> {
        let is_at_frontier = distance24(self.next, relative_psn) == 0;
        is_at_frontier
            .then_some(PacketAttempt { packet: self.next, transmission: self.lost.saturating_add(1) })
    }

    /// Records whether the packet at the frontier arrives, as the plan decided; the packet takes `psn_count`
    /// PSNs.
    pub fn decided(&mut self, arrives: bool, psn_count: u32) {
        if arrives {
            self.next = self.next.wrapping_add(u64::from(psn_count.max(1)));
            self.lost = 0;
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }
}

/// Most ranges of packets that wait for their turn; further packets are counted when they are sent again.
const MAX_RANGES: usize = 4096;

/// The progress of answers that carry data: READ responses, and answers to atomics. PSNs between them are
/// acknowledged without data, so a later one may be next. But answers that were sent beyond a lost one must
/// be sent again, in order.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    next: u64,
    /// Number of times that the plan has lost the first packet of `again`.
    lost: u32,
    /// Ranges of answers that must be sent again (from key to before value): the one that the plan has lost,
    /// and those that were sent beyond it.
    again: BTreeMap<u64, u64>,
}

impl Answers {
    /// Returns the progress of answers of which this one is seen first.
    pub fn beginning_at(relative_psn: u32) -> Answers {
        Answers { next: relative_psn.into(), ..Answers::default() }
    }

    /// Returns the transmission of this packet. `None` means that the plan is not asked about it.
    pub fn attempt(&mut self, packet: u64) -> Option<PacketAttempt> {
        match self.again.first_key_value().map(|(first, _)| *first) {
            Some(first) if packet > first => {
                self.add(packet);
                None
            }
            Some(first) => (packet == first)
                .then_some(PacketAttempt { packet, transmission: self.lost.saturating_add(1) }),
            None => (packet >= self.next).then_some(PacketAttempt { packet, transmission: 1 }),
        }
    }

    /// Records whether that packet arrives, as the plan decided.
    pub fn decided(&mut self, attempt: PacketAttempt, arrives: bool) {
        if !arrives {
            self.lost = attempt.transmission;
            self.add(attempt.packet);
            return;
        }
        (self.next, self.lost) = (attempt.packet.wrapping_add(1), 0);
        if let Some(end) = self.again.remove(&attempt.packet)
            && self.next < end
        {
            self.again.insert(self.next, end);
        }
    }

    fn add(&mut self, packet: u64) {
        let end = packet.wrapping_add(1);
        let has_room = self.again.len() < MAX_RANGES;
        match self.again.range_mut(..=packet).next_back() {
            Some((_, before)) if packet < *before => {}
            Some((_, before)) if packet == *before => *before = end,
            _ if has_room => {
                self.again.insert(packet, end);
            }
            _ => {}
        }
    }
}

/// The progress of packets that are sent once each.
#[derive(Debug, Clone, Default)]
pub struct Once {
    next: u64,
}

impl Once {
    /// Returns the progress of packets of which this one is seen first.
    pub fn beginning_at(relative_psn: u32) -> Once {
        Once { next: relative_psn.into() }
    }

    /// Returns the transmission of a packet with this relative PSN.
    pub fn attempt(&mut self, relative_psn: u32) -> PacketAttempt {
        let packet = unwrap24(self.next, relative_psn);
        self.next = packet.wrapping_add(1);
        PacketAttempt { packet, transmission: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the attempts at which the plan is asked if a sender goes back at each of these points.
    fn asked(passes: &[(u32, u32)], lost: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let (mut requests, mut asked) = (Requests::default(), Vec::new());
        for &(from, to) in passes {
            for psn in from..to {
                let Some(attempt) = requests.attempt(psn) else { continue };
                let at = (attempt.packet, attempt.transmission);
                requests.decided(!lost.contains(&at), 1);
                asked.push(at);
            }
        }
        asked
    }

    #[test]
    fn a_sender_is_asked_the_same_however_it_goes_back() {
        let lost = [(2, 1), (2, 2), (5, 1)];
        let expected = vec![(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1), (5, 1), (5, 2), (6, 1)];
        let large_window = [(0, 7), (2, 7), (0, 7), (5, 7)];
        let small_window = [(0, 3), (1, 3), (2, 3), (3, 4), (2, 6), (4, 6), (0, 7)];
        assert_eq!(asked(&large_window, &lost), expected);
        assert_eq!(asked(&small_window, &lost), expected);
    }

    #[test]
    fn a_read_takes_the_psns_of_its_answer() {
        let mut requests = Requests::default();
        requests.decided(false, 8);
        assert_eq!(requests.attempt(0), Some(PacketAttempt { packet: 0, transmission: 2 }));
        requests.decided(true, 8);
        assert_eq!(requests.attempt(3), None, "the rest of the answer is asked for");
        assert_eq!(requests.attempt(8), Some(PacketAttempt { packet: 8, transmission: 1 }));
    }

    #[test]
    fn answers_skip_what_has_none_and_wait_for_what_was_lost() {
        let mut answers = Answers::default();
        let mut ask = |packet, arrives| {
            let attempt = answers.attempt(packet)?;
            answers.decided(attempt, arrives);
            Some((attempt.packet, attempt.transmission))
        };
        assert_eq!([ask(4, true), ask(5, false), ask(6, true)], [Some((4, 1)), Some((5, 1)), None]);
        assert_eq!([ask(4, true), ask(5, false), ask(6, true)], [None, Some((5, 2)), None]);
        assert_eq!([ask(5, true), ask(6, true), ask(5, true)], [Some((5, 3)), Some((6, 1)), None]);
        assert_eq!([ask(9, true), ask(8, true)], [Some((9, 1)), None], "8 has no answer");
    }

    #[test]
    fn what_was_sent_beyond_a_lost_answer_comes_again_before_what_is_new() {
        let mut answers = Answers::default();
        let mut ask = |packet, arrives| {
            let attempt = answers.attempt(packet)?;
            answers.decided(attempt, arrives);
            Some((attempt.packet, attempt.transmission))
        };
        assert_eq!(ask(2, false), Some((2, 1)));
        assert_eq!([3, 4, 7, 8].map(|packet| ask(packet, true)), [None; 4]);
        assert_eq!([ask(2, true), ask(3, true)], [Some((2, 2)), Some((3, 1))]);
        // The rest of a stream that was interrupted: its receiver waits for 4.
        assert_eq!([ask(9, true), ask(8, true)], [None, None]);
        assert_eq!([4, 7, 8, 9, 12].map(|packet| ask(packet, true).is_some()), [true; 5]);
    }

    #[test]
    fn packets_go_on_where_psns_wrap() {
        let mut requests = Requests::default();
        let step = 1 << 22;
        for round in 0..20_u64 {
            let attempt = requests.attempt((round * step) as u32 & 0xff_ffff).unwrap();
            assert_eq!(attempt.packet, round * step);
            requests.decided(true, step as u32);
        }
        assert_eq!(unwrap24((1 << 24) + 5, 0xff_ffff), (1 << 24) - 1);
        let mut once = Once { next: (1 << 24) - 1 };
        assert_eq!([0xff_ffff, 0].map(|psn| once.attempt(psn).packet), [(1 << 24) - 1, 1 << 24]);
    }
}

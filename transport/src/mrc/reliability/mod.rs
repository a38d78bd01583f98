//! Reliability: the packets that have arrived, that are in flight, and that are lost.
//!
//! Packets in flight from a requester, and the local ACK timeout.

use alloc::collections::{BTreeSet, VecDeque};

use crate::mrc::constants::{EXP_FOR_EVER, MAX_LINEAR_CNT, MAX_TIMEOUT};

/// Returns the nanoseconds of an exponent: 1.024 µs · 2^timeout, at most 17.17 s.
pub(crate) const fn timeout_ns(exponent: u8) -> u64 {
    1024 << if exponent > MAX_TIMEOUT { MAX_TIMEOUT } else { exponent }
}

/// All retries have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyRetries;

#[derive(Debug, Clone)]
pub(crate) struct RetryTimer {
    timeout: u8,
    linear_cnt: u8,
    exp_cnt: u8,
    /// Number of retries since the last progress.
    count: u32,
    /// Time of the last NACK that counted as a retry.
    nack_ns: Option<u64>,
}

impl RetryTimer {
    pub(crate) fn new(timeout: u8, linear_cnt: u8, exp_cnt: u8) -> RetryTimer {
        let linear_cnt = linear_cnt.min(MAX_LINEAR_CNT);
        let exp_cnt = exp_cnt.min(EXP_FOR_EVER);
        RetryTimer { timeout: timeout.min(MAX_TIMEOUT), linear_cnt, exp_cnt, count: 0, nack_ns: None }
    }

    /// Returns the timeout without doublings, in ns.
    pub(crate) fn first_ns(&self) -> u64 {
        timeout_ns(self.timeout)
    }

    /// Returns the time until the next retry, in ns.
    pub(crate) fn next_ns(&self) -> u64 {
        let retry = self.count.saturating_add(1);
        let doublings = retry.saturating_sub(self.linear_cnt.into()).min(self.exp_cnt.into());
        timeout_ns(self.timeout.saturating_add(u8::try_from(doublings).unwrap_or(u8::MAX)))
    }

    /// Returns the number of retries that are left; 255 for as many as are needed.
    pub(crate) fn retries_left(&self) -> u8 {
        let most = u32::from(self.linear_cnt) + u32::from(self.exp_cnt);
        if self.exp_cnt >= EXP_FOR_EVER { u8::MAX } else { most.saturating_sub(self.count) as u8 }
    }

    /// Resets the retries because a packet has arrived.
    pub(crate) fn progress(&mut self) {
        (self.count, self.nack_ns) = (0, None);
    }

    /// Counts a timeout.
    ///
    /// # Errors
    /// The number of retries is exhausted.
    pub(crate) fn retry(&mut self) -> Result<(), TooManyRetries> {
        self.count = self.count.saturating_add(1);
        let most = u32::from(self.linear_cnt) + u32::from(self.exp_cnt);
        if self.exp_cnt < EXP_FOR_EVER && self.count > most { Err(TooManyRetries) } else { Ok(()) }
    }

    /// Counts a NACK of the packet that all later ones wait for. Switches may trim that packet again in each
    /// round trip, so it counts at most once per timeout.
    ///
    /// # Errors
    /// As for [`RetryTimer::retry`].
    pub(crate) fn nack(&mut self, now_ns: u64) -> Result<(), TooManyRetries> {
        let is_early = |last: u64| now_ns < last.saturating_add(self.first_ns());
        if self.nack_ns.is_some_and(is_early) {
            return Ok(());
        }
        self.nack_ns = Some(now_ns);
        self.retry()
    }
}

/// The state of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketState {
    /// The packet is in flight.
    Flying,
    /// The packet is to be retransmitted.
    Lost,
    /// The packet has arrived.
    Arrived,
}

/// A packet that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentPacket {
    /// Time of the last transmission.
    pub(crate) sent_ns: u64,
    /// Time of the first transmission.
    pub(crate) first_ns: u64,
    /// Position of the last transmission among all transmissions.
    pub(crate) order: u64,
    /// Size for congestion control, in bytes.
    pub(crate) size_bytes: u32,
    /// Path of the last transmission.
    pub(crate) path: u16,
    /// Number of transmissions of the packet.
    pub(crate) attempts: u8,
    pub(crate) state: PacketState,
}

/// A transmission of a packet.
#[derive(Debug, Clone, Copy)]
struct Transmission {
    order: u64,
    number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Flight {
    ring: VecDeque<SentPacket>,
    /// Number of the first packet of the ring. All packets below it have arrived.
    base: u64,
    transmissions: VecDeque<Transmission>,
    next_order: u64,
    /// Position after the newest transmission that is known to have arrived.
    arrived_order: u64,
    lost: BTreeSet<u64>,
    flying: usize,
}

impl Flight {
    /// Returns the number of the first packet that may not have arrived.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the number of the next new packet.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    /// Returns the number of packets in flight.
    pub(crate) fn flying(&self) -> usize {
        self.flying
    }

    /// Returns the number of packets that have arrived out of order.
    pub(crate) fn arrived(&self) -> usize {
        self.ring.len().saturating_sub(self.flying + self.lost.len())
    }

    /// Reports whether all packets that were sent have arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.flying == 0 && self.lost.is_empty()
    }

    /// Returns the position that the next transmission gets.
    pub(crate) fn next_order(&self) -> u64 {
        self.next_order
    }

    /// Returns the position after the newest transmission that is known to have arrived.
    pub(crate) fn arrived_order(&self) -> u64 {
        self.arrived_order
    }

    pub(crate) fn get(&self, number: u64) -> Option<&SentPacket> {
        self.ring.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut SentPacket> {
        self.ring.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Records the transmission of the next packet or of a lost one. Any other number is ignored, and the
    /// result is false.
    pub(crate) fn launch(&mut self, number: u64, sent_ns: u64, size_bytes: u32, path: u16) -> bool {
        let order = self.next_order;
        let sent = SentPacket {
            sent_ns,
            first_ns: sent_ns,
            order,
            size_bytes,
            path,
            attempts: 1,
            state: PacketState::Flying,
        };
        if number == self.next() {
            self.ring.push_back(sent);
        } else if self.lost.remove(&number) {
            if let Some(entry) = self.get_mut(number) {
                let attempts = entry.attempts.saturating_add(1);
                *entry = SentPacket { first_ns: entry.first_ns, attempts, ..sent };
            }
        } else {
            return false;
        }
        self.next_order += 1;
        self.flying += 1;
        self.transmissions.push_back(Transmission { order, number });
        if self.transmissions.len() > 64 + 4 * self.ring.len() {
            self.forget_stale();
        }
        true
    }

    /// Removes transmissions that are not the last ones of packets in flight.
    fn forget_stale(&mut self) {
        let transmissions = core::mem::take(&mut self.transmissions);
        self.transmissions = transmissions.into_iter().filter(|one| self.is_current(one)).collect();
    }

    fn is_current(&self, one: &Transmission) -> bool {
        let is_same = |sent: &SentPacket| sent.order == one.order && sent.state == PacketState::Flying;
        self.get(one.number).is_some_and(is_same)
    }

    /// Records that a packet has arrived. Returns its previous record, unless its arrival was known.
    pub(crate) fn arrive(&mut self, number: u64) -> Option<SentPacket> {
        let entry = self.get_mut(number).filter(|sent| sent.state != PacketState::Arrived)?;
        let before = *entry;
        entry.state = PacketState::Arrived;
        match before.state {
            PacketState::Flying => self.flying = self.flying.saturating_sub(1),
            _ => drop(self.lost.remove(&number)),
        }
        // Any of the transmissions may have arrived if the packet was sent more than once.
        if before.attempts == 1 {
            self.arrived_order = self.arrived_order.max(before.order + 1);
        }
        Some(before)
    }

    /// Records that the transmission at this position has arrived.
    pub(crate) fn arrived_up_to(&mut self, order: u64) {
        self.arrived_order = self.arrived_order.max(order + 1).min(self.next_order);
    }

    /// Records that all packets below a number have arrived. Reports whether that was unknown before.
    pub(crate) fn arrive_below(&mut self, below: u64) -> bool {
        let below = below.min(self.next());
        let before = self.base;
        while self.base < below {
            let _ = self.arrive(self.base);
            self.ring.pop_front();
            self.base += 1;
        }
        self.base > before
    }

    /// Marks a packet in flight as lost, and returns its record.
    pub(crate) fn lose(&mut self, number: u64) -> Option<SentPacket> {
        let entry = self.get_mut(number).filter(|sent| sent.state == PacketState::Flying)?;
        entry.state = PacketState::Lost;
        let sent = *entry;
        self.flying = self.flying.saturating_sub(1);
        self.lost.insert(number);
        Some(sent)
    }

    /// Returns the number of the first packet that is to be retransmitted.
    pub(crate) fn first_lost(&self) -> Option<u64> {
        self.lost.first().copied()
    }

    /// Returns the packet in flight with the oldest transmission.
    pub(crate) fn oldest(&mut self) -> Option<(u64, SentPacket)> {
        while let Some(one) = self.transmissions.front() {
            if self.is_current(one) {
                let number = one.number;
                return self.get(number).map(|sent| (number, *sent));
            }
            self.transmissions.pop_front();
        }
        None
    }

    /// Returns the time of the oldest transmission of a packet in flight.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        let one = self.transmissions.iter().find(|one| self.is_current(one))?;
        self.get(one.number).map(|sent| sent.sent_ns)
    }

    /// Returns the packets in flight that were sent before this position, the oldest first.
    pub(crate) fn flying_before(&self, order: u64) -> impl Iterator<Item = (u64, SentPacket)> + use<'_> {
        let transmissions = self.transmissions.iter().take_while(move |one| one.order < order);
        let current = transmissions.filter(|one| self.is_current(one));
        current.filter_map(|one| self.get(one.number).map(|sent| (one.number, *sent)))
    }
}

mod receive;

pub(super) use receive::{Placement, ReceiveReliability, SackCause};

#[cfg(any(test, kani))]
mod proofs;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::proofs::{check, check_all};

    /// Checks that linear retries wait for the timeout, and exponential ones for twice the previous time, up
    /// to 17.17 s.
    #[test]
    fn retries_are_linear_and_then_exponential() {
        check_all(|from| {
            let (timeout, linear, exp) = (from.up_to(30) as u8, from.up_to(9) as u8, from.up_to(27) as u8);
            let mut timer = RetryTimer::new(timeout, linear, exp);
            let (timeout, linear, exp) = (timeout.min(24), linear.min(7), exp.min(25));
            for count in 0..40_u32 {
                let retry = (count + 1).saturating_sub(linear.into());
                let doublings = retry.min(exp.into()).min(u32::from(24 - timeout));
                assert_eq!(timer.next_ns(), 1024 << (u32::from(timeout) + doublings));
                let is_over = exp < 25 && count + 1 > u32::from(linear) + u32::from(exp);
                assert_eq!(timer.retry().is_err(), is_over);
            }
            timer.progress();
            assert_eq!(timer.next_ns() == timer.first_ns(), linear > 0 || exp == 0 || timeout == 24);
        });
    }

    #[test]
    fn nacks_count_once_in_a_timeout() {
        let mut timer = RetryTimer::new(14, 1, 0);
        assert_eq!((timer.nack(0), timer.nack(timer.first_ns() - 1)), (Ok(()), Ok(())));
        assert_eq!(timer.nack(timer.first_ns()), Err(TooManyRetries));
    }

    #[test]
    fn what_is_lost_leaves_again_and_arrives_once() {
        let mut flight = Flight::default();
        (0..4).for_each(|number| assert!(flight.launch(number, 10 + number, 100, 7)));
        assert_eq!(flight.lose(1).unwrap().path, 7);
        assert_eq!((flight.lose(1), flight.first_lost(), flight.flying()), (None, Some(1), 3));
        assert!(flight.launch(1, 20, 100, 8) && !flight.launch(1, 20, 100, 8));
        assert_eq!(flight.get(1).unwrap().attempts, 2);
        assert_eq!(flight.oldest().unwrap().0, 0);
        assert!(flight.arrive(3).is_some() && flight.arrive(3).is_none());
        assert_eq!(flight.arrived_order(), 4);
        assert!(flight.arrive(1).is_some());
        assert_eq!(flight.arrived_order(), 4, "any of its transmissions may have arrived");
        let before: Vec<u64> = flight.flying_before(5).map(|(number, _)| number).collect();
        assert_eq!(before, [0, 2]);
        assert!(flight.arrive_below(9) && !flight.arrive_below(9));
        assert_eq!((flight.base(), flight.next(), flight.is_empty()), (4, 4, true));
        assert_eq!(flight.oldest(), None);
    }

    /// Checks for all orders of events that the counts agree with the states, and that memory is bounded.
    #[test]
    fn counts_are_those_of_the_states() {
        check(|from| {
            let mut flight = Flight::default();
            for now_ns in 0..80 {
                let number = flight.base() + from.up_to(6);
                match from.up_to(5) {
                    0 | 1 => assert!(flight.launch(flight.next(), now_ns, 1, 0)),
                    2 => drop(flight.lose(number)),
                    3 => drop(flight.arrive(number)),
                    4 => drop(flight.arrive_below(flight.base() + from.up_to(2))),
                    _ => {
                        if let Some(lost) = flight.first_lost() {
                            assert!(flight.launch(lost, now_ns, 1, 0));
                        }
                    }
                }
                let count = |state| {
                    let all = (flight.base()..flight.next()).filter_map(|number| flight.get(number));
                    all.filter(|sent| sent.state == state).count()
                };
                assert_eq!(flight.flying(), count(PacketState::Flying));
                assert_eq!(flight.is_empty(), count(PacketState::Flying) + count(PacketState::Lost) == 0);
                assert_eq!(flight.flying_before(u64::MAX).count(), flight.flying());
                assert!(flight.arrived_order() <= flight.next_order());
                assert_eq!(flight.oldest().map(|(_, sent)| sent.sent_ns), flight.oldest_ns());
            }
        });
    }
}

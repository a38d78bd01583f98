//! The pacer: decides by the rate when the packets of a queue pair may leave.
//!
//! Requests and the answers to the peer's READs share one rate, and alternate if both wait.

use alloc::sync::Arc;

use super::parameters::{Congestion, CongestionAlgorithm, DcqcnParameters};
use super::reaction_point::ReactionPoint;
use crate::event::{QpEvent, Topic};
use crate::host::{Host, QpContext};
use crate::path::Path;

/// Link bytes of an IPv4 packet: Ethernet header and FCS, IP and UDP headers.
const IPV4_LINK_BYTES: usize = 14 + 4 + 20 + 8;
const IPV6_LINK_BYTES: usize = 14 + 4 + 40 + 8;
/// Length of the FCS of an Ethernet frame in bytes.
const FCS_BYTES: u64 = 4;
/// Binary digits of the fraction in which times are counted, in parts of a ns, so that a rate is met exactly.
const FRACTION_DIGITS: u32 = 10;
/// Time in nanoseconds that one side waits for the other one to send.
const GIVE_WAY_NS: u64 = 1_000;

/// Kind of packets that are paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paced {
    /// Packets of the requester.
    Requests,
    /// Packets of the responder: answers to READs.
    Answers,
}

/// The rate of a queue pair's packets, and the time at which the next one may leave.
#[derive(Debug)]
pub(crate) struct Pacer {
    reaction_point: ReactionPoint,
    max_burst_bytes: u64,
    next_ns: u64,
    next_fraction: u64,
    /// Time until which a packet is held.
    held_until_ns: Option<u64>,
    requests_wait: bool,
    answers_wait: bool,
    last: Paced,
    /// Rate Rc that was last reported to subscribers.
    reported_rate: u64,
}

impl Pacer {
    /// Creates the pacer of a connected queue pair, if the algorithm needs one.
    pub(crate) fn of(congestion: &Congestion) -> Option<Pacer> {
        match &congestion.algorithm {
            CongestionAlgorithm::Window => None,
            CongestionAlgorithm::Dcqcn(parameters) => Some(Pacer::new(Arc::clone(parameters))),
        }
    }

    fn new(parameters: Arc<DcqcnParameters>) -> Pacer {
        let max_burst_bytes = parameters.max_burst_bytes.into();
        Pacer::with(ReactionPoint::new(parameters), max_burst_bytes)
    }

    /// Creates the pacer of a constant rate in bit/s. No packet leaves early.
    pub(crate) fn at_rate(bits_per_second: u64) -> Pacer {
        Pacer::with(ReactionPoint::at_rate(bits_per_second), 0)
    }

    fn with(reaction_point: ReactionPoint, max_burst_bytes: u64) -> Pacer {
        let reported_rate = reaction_point.current();
        Pacer {
            reaction_point,
            max_burst_bytes,
            next_ns: 0,
            next_fraction: 0,
            held_until_ns: None,
            requests_wait: false,
            answers_wait: false,
            last: Paced::Answers,
            reported_rate,
        }
    }

    /// Returns the current rate Rc in bit/s.
    pub(crate) fn rate(&self) -> u64 {
        self.reaction_point.current()
    }

    /// Returns the time at which a waiting packet may leave.
    #[inline]
    pub(crate) fn held_until_ns(&self) -> Option<u64> {
        self.held_until_ns
    }

    /// Releases packets that may leave at this time.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        if self.held_until_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.held_until_ns = None;
        }
    }

    /// Reports whether a packet may leave now. If not, [`Pacer::held_until_ns`] says when to try again.
    pub(crate) fn admits(&mut self, side: Paced, now_ns: u64) -> bool {
        let (own, other) = match side {
            Paced::Requests => (&mut self.requests_wait, &mut self.answers_wait),
            Paced::Answers => (&mut self.answers_wait, &mut self.requests_wait),
        };
        let gives_way = self.last == side && *other;
        if now_ns >= self.next_ns && !gives_way {
            *own = false;
            self.held_until_ns = None;
            return true;
        }
        *own = true;
        let until_ns = if now_ns < self.next_ns {
            self.next_ns
        } else {
            *other = false;
            now_ns.saturating_add(GIVE_WAY_NS)
        };
        self.held_until_ns = Some(until_ns);
        false
    }

    /// Counts a packet that leaves, with its bytes from the BTH to the ICRC.
    pub(crate) fn handle_sent<H: Host>(
        &mut self,
        side: Paced,
        (path, length_bytes): (&Path, usize),
        now_ns: u64,
        qp: &QpContext,
        host: &mut H,
    ) {
        self.last = side;
        let headers = if path.flow.source.is_ipv4() { IPV4_LINK_BYTES } else { IPV6_LINK_BYTES };
        self.count((length_bytes + headers) as u64, now_ns);
        self.emit_uncounted(qp, host);
    }

    /// Counts an Ethernet frame that leaves, with its bytes but those of the FCS.
    pub(crate) fn handle_frame(&mut self, length_bytes: u32, now_ns: u64) {
        self.count(u64::from(length_bytes) + FCS_BYTES, now_ns);
    }

    fn count(&mut self, bytes: u64, now_ns: u64) {
        self.reaction_point.handle_sent(bytes, now_ns);
        let rate = self.rate();
        let (burst_ns, _) = duration(self.max_burst_bytes, rate);
        let earliest_ns = now_ns.saturating_sub(burst_ns);
        if self.next_ns < earliest_ns {
            (self.next_ns, self.next_fraction) = (earliest_ns, 0);
        }
        let (takes_ns, fraction) = duration(bytes, rate);
        let fraction = self.next_fraction + fraction;
        self.next_ns = self.next_ns.saturating_add(takes_ns + (fraction >> FRACTION_DIGITS));
        self.next_fraction = fraction & ((1 << FRACTION_DIGITS) - 1);
    }

    /// Handles a CNP.
    pub(crate) fn handle_cnp<H: Host>(&mut self, now_ns: u64, qp: &QpContext, host: &mut H) {
        self.reaction_point.handle_cnp(now_ns);
        self.emit_uncounted(qp, host);
    }

    fn emit_uncounted<H: Host>(&mut self, qp: &QpContext, host: &mut H) {
        let rate = self.rate();
        if rate == self.reported_rate {
            return;
        }
        self.reported_rate = rate;
        if host.listens(Topic::Packets) {
            let (target, alpha) = (self.reaction_point.target(), self.reaction_point.alpha());
            host.emit(qp, QpEvent::RateChanged { rate, target, alpha });
        }
    }
}

/// Returns the time that bytes take at a rate: whole ns, and the rest in parts of a ns.
fn duration(bytes: u64, rate: u64) -> (u64, u64) {
    // 128 bits are needed: with at most 2^24 bytes, 2^24 × 2^33 × 2^10 exceeds 64 bits.
    let parts = ((u128::from(bytes) * 8_000_000_000) << FRACTION_DIGITS) / u128::from(rate.max(1));
    let parts = u64::try_from(parts).unwrap_or(u64::MAX);
    (parts >> FRACTION_DIGITS, parts & ((1 << FRACTION_DIGITS) - 1))
}

#[cfg(any(test, kani))]
#[path = "pacer_proofs.rs"]
mod proofs;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_lets_no_frame_leave_early() {
        // A frame of 1000 bytes with its FCS takes 1 ms at 8 Mbit/s.
        let mut pacer = Pacer::at_rate(8_000_000);
        for sent in 0..100_u64 {
            let due_ns = 5_000 + sent * 1_000_000;
            assert!(sent == 0 || !pacer.admits(Paced::Requests, due_ns - 1), "frame {sent}");
            assert!(sent == 0 || pacer.held_until_ns() == Some(due_ns));
            assert!(pacer.admits(Paced::Requests, due_ns));
            pacer.handle_frame(996, due_ns);
        }
        // A pause saves nothing up.
        let late_ns = 1_000_000_000;
        assert!(pacer.admits(Paced::Requests, late_ns));
        pacer.handle_frame(996, late_ns);
        assert!(!pacer.admits(Paced::Requests, late_ns + 999_999));
    }
}

//! The pacer: when the packets of a queue pair may leave, by its rate.
//!
//! Requests and the answers to the peer's READs leave at one rate, in turns if both wait.

use alloc::sync::Arc;

use super::parameters::{Congestion, CongestionAlgorithm, DcqcnParameters};
use super::reaction_point::ReactionPoint;
use crate::event::{QpEvent, Topic};
use crate::host::{Host, QpContext};
use crate::path::Path;

/// Ethernet header and FCS, IP and UDP headers in front of a packet.
const IPV4_LINK_BYTES: usize = 14 + 4 + 20 + 8;
const IPV6_LINK_BYTES: usize = 14 + 4 + 40 + 8;
/// Times are counted in so many parts of a ns, so that a rate is met exactly.
const FRACTION_DIGITS: u32 = 10;
/// How long a side that gives way waits, unless the other one sends.
const GIVE_WAY_NS: u64 = 1_000;

/// Which packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paced {
    /// Of the requester.
    Requests,
    /// Of the responder: answers to READs.
    Answers,
}

/// The rate of a queue pair's packets, and when the next one may leave.
#[derive(Debug)]
pub(crate) struct Pacer {
    reaction_point: ReactionPoint,
    max_burst_bytes: u64,
    next_ns: u64,
    next_fraction: u64,
    /// A packet waits until then.
    held_until_ns: Option<u64>,
    requests_wait: bool,
    answers_wait: bool,
    last: Paced,
    /// What listeners know of Rc.
    told: u64,
}

impl Pacer {
    /// The pacer of a connected queue pair, if the algorithm needs one.
    pub(crate) fn of(congestion: &Congestion) -> Option<Pacer> {
        match &congestion.algorithm {
            CongestionAlgorithm::Window => None,
            CongestionAlgorithm::Dcqcn(parameters) => Some(Pacer::new(Arc::clone(parameters))),
        }
    }

    fn new(parameters: Arc<DcqcnParameters>) -> Pacer {
        let max_burst_bytes = parameters.max_burst_bytes.into();
        let reaction_point = ReactionPoint::new(parameters);
        let told = reaction_point.current();
        Pacer {
            reaction_point,
            max_burst_bytes,
            next_ns: 0,
            next_fraction: 0,
            held_until_ns: None,
            requests_wait: false,
            answers_wait: false,
            last: Paced::Answers,
            told,
        }
    }

    /// The current rate Rc in bit/s.
    pub(crate) fn rate(&self) -> u64 {
        self.reaction_point.current()
    }

    /// When a packet that waits may leave.
    #[inline]
    pub(crate) fn held_until_ns(&self) -> Option<u64> {
        self.held_until_ns
    }

    /// Time has come: what waits may try.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        if self.held_until_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.held_until_ns = None;
        }
    }

    /// Whether a packet may leave now. If not, [`Pacer::held_until_ns`] says when to try again.
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

    /// A packet of so many bytes from the BTH to the ICRC leaves.
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
        let bytes = (length_bytes + headers) as u64;
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
        self.tell(qp, host);
    }

    /// A CNP came.
    pub(crate) fn handle_cnp<H: Host>(&mut self, now_ns: u64, qp: &QpContext, host: &mut H) {
        self.reaction_point.handle_cnp(now_ns);
        self.tell(qp, host);
    }

    fn tell<H: Host>(&mut self, qp: &QpContext, host: &mut H) {
        let rate = self.rate();
        if rate == self.told {
            return;
        }
        self.told = rate;
        if host.listens(Topic::Packets) {
            let (target, alpha) = (self.reaction_point.target(), self.reaction_point.alpha());
            host.emit(qp, QpEvent::RateChanged { rate, target, alpha });
        }
    }
}

/// How long bytes take at a rate: ns, and what is over in parts of a ns.
fn duration(bytes: u64, rate: u64) -> (u64, u64) {
    // 2^24 bytes at most, and 2^24 × 2^33 × 2^10 exceeds 64 bits.
    let parts = ((u128::from(bytes) * 8_000_000_000) << FRACTION_DIGITS) / u128::from(rate.max(1));
    let parts = u64::try_from(parts).unwrap_or(u64::MAX);
    (parts >> FRACTION_DIGITS, parts & ((1 << FRACTION_DIGITS) - 1))
}

#[cfg(any(test, kani))]
#[path = "pacer_proofs.rs"]
mod proofs;

//! Requests that come before the listener that they are for.
//!
//! A server that tells its client out of band "now", and only then listens, is a little faster than its
//! client where an adapter takes milliseconds to make a queue pair. Here it may lose that race, and
//! perftest's does. So a request that no process serves is held for a moment, and refused when the moment is
//! over. The peer cannot tell: it repeats a request after seconds.

use std::mem;

use super::envelope::InboundMad;

/// Time that a request waits for its listener, in nanoseconds.
const PATIENCE_NS: u64 = 250_000_000;
/// Time between two searches for the listener, in nanoseconds.
const SEARCH_INTERVAL_NS: u64 = 10_000_000;
/// Number of requests that may wait. More are refused at once.
const LIMIT: usize = 64;

/// The requests that wait, each with the end of its wait.
#[derive(Default)]
pub(crate) struct EarlyRequests {
    waiting: Vec<(u64, InboundMad)>,
    search_at_ns: u64,
}

impl EarlyRequests {
    /// Returns the time until which a request that has just come may wait.
    pub(crate) const fn patience_ends_ns(now_ns: u64) -> u64 {
        now_ns.saturating_add(PATIENCE_NS)
    }

    /// Holds a request. Returns one that has waited long enough, and any if too many wait.
    pub(crate) fn hold(&mut self, inbound: InboundMad, until_ns: u64, now_ns: u64) -> Option<InboundMad> {
        if now_ns >= until_ns || self.waiting.len() >= LIMIT {
            return Some(inbound);
        }
        if self.waiting.is_empty() {
            self.search_at_ns = now_ns.saturating_add(SEARCH_INTERVAL_NS).min(until_ns);
        }
        self.waiting.push((until_ns, inbound));
        None
    }

    /// Returns when the agent should search for their listeners again.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.search_at_ns)
    }

    /// Takes all requests that wait, if it is time for a search; the caller returns those whose listener is
    /// still missing.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<(u64, InboundMad)> {
        if now_ns < self.search_at_ns { Vec::new() } else { mem::take(&mut self.waiting) }
    }
}

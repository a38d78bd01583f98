//! Requests that come before the listener that they are for.
//!
//! A server that tells its client out of band "now", and only then listens, is a little faster than its
//! client where an adapter takes milliseconds to make a queue pair. Here it may lose that race, and
//! perftest's does. So a request that no process serves is kept for a moment, and refused when the moment is
//! over. The peer cannot tell: it repeats a request after seconds.

use std::mem;

use super::envelope::Inbound;

/// How long a request waits for its listener.
const PATIENCE_NS: u64 = 250_000_000;
/// How often it is looked for.
const LOOK_NS: u64 = 10_000_000;
/// Requests that wait. More are refused at once.
const LIMIT: usize = 64;

/// The requests that wait, each until when.
#[derive(Default)]
pub(crate) struct EarlyRequests {
    waiting: Vec<(u64, Inbound)>,
    look_at_ns: u64,
}

impl EarlyRequests {
    /// Until when a request that has just come may wait.
    pub(crate) const fn patience_ends_ns(now_ns: u64) -> u64 {
        now_ns.saturating_add(PATIENCE_NS)
    }

    /// Keeps a request. One that has waited long enough is given back, and any if too many wait.
    pub(crate) fn keep(&mut self, inbound: Inbound, until_ns: u64, now_ns: u64) -> Option<Inbound> {
        if now_ns >= until_ns || self.waiting.len() >= LIMIT {
            return Some(inbound);
        }
        if self.waiting.is_empty() {
            self.look_at_ns = now_ns.saturating_add(LOOK_NS).min(until_ns);
        }
        self.waiting.push((until_ns, inbound));
        None
    }

    /// When the agent should look for their listeners again.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.look_at_ns)
    }

    /// All that wait, if it is time to look: those whose listener is still missing come back.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<(u64, Inbound)> {
        if now_ns < self.look_at_ns { Vec::new() } else { mem::take(&mut self.waiting) }
    }
}

//! Requests for a service whose listener closed a moment ago.
//!
//! A program that listens for one connection, closes its listener and opens it again for the next (perftest's `-R` does) is asked
//! in between, the sooner the more its machine has to do. Turned away, many programs give up. So such a request waits a little for
//! the listener to come back.

use std::collections::VecDeque;

use pumice_transport::mad::{CmMessage, Mad};

use super::ServiceEntry;
use super::envelope::Inbound;

/// How long after its end a listener may come back.
const RETURN_NS: u64 = 500_000_000;
/// How long a request waits for it.
const WAIT_NS: u64 = 300_000_000;
/// Listeners that are remembered.
const MAX_CLOSED: usize = 16;
/// Requests that wait; others are rejected at once.
const MAX_WAITING: usize = 64;

#[derive(Default)]
pub(super) struct Patience {
    closed: VecDeque<(u64, ServiceEntry)>,
    waiting: Vec<(u64, Inbound)>,
}

impl Patience {
    /// A listener ended.
    pub(super) fn closed(&mut self, entry: &ServiceEntry, now_ns: u64) {
        if self.closed.len() >= MAX_CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back((now_ns, *entry));
    }

    /// Somebody listens: what waited for that is due now.
    pub(super) fn opened(&mut self, entry: &ServiceEntry) {
        for (until_ns, inbound) in &mut self.waiting {
            if is_for(inbound, entry) {
                *until_ns = 0;
            }
        }
    }

    /// Keeps a request that nobody serves, if somebody did a moment ago. Gives it back otherwise.
    pub(super) fn keep(&mut self, inbound: Inbound, now_ns: u64) -> Option<Inbound> {
        self.closed.retain(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < RETURN_NS);
        let known = self.closed.iter().any(|(_, entry)| is_for(&inbound, entry));
        if !known || self.waiting.len() >= MAX_WAITING {
            return Some(inbound);
        }
        self.waiting.push((now_ns.saturating_add(WAIT_NS), inbound));
        None
    }

    /// A request that has waited long enough, or need not any more.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<Inbound> {
        let place = self.waiting.iter().position(|(until_ns, _)| *until_ns <= now_ns)?;
        Some(self.waiting.remove(place).1)
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.waiting.iter().map(|(until_ns, _)| *until_ns).min()
    }
}

/// Whether a MAD asks for a service.
fn is_for(inbound: &Inbound, entry: &ServiceEntry) -> bool {
    let message = Mad::parse(inbound.mad()).ok().and_then(|mad| CmMessage::parse(&mad).ok());
    message
        .filter(|message| message.recipient().is_none())
        .and_then(|message| message.service())
        .is_some_and(|service_id| entry.serves(service_id, inbound.route().local))
}

//! What is known of one queue pair: which of its requests are over.

use std::collections::VecDeque;

use pumice_ground::intervals::RangeId;
use pumice_transport::types::{SendFlags, SendRequest};

use super::echo::Echo;
use super::incoming::Incoming;
use super::peer::PeerProcess;
use super::remote::Space;

/// Requests and completions that are remembered of a queue pair.
const MAX_KEPT: usize = 1 << 14;
/// Posts of a queue pair whose stack is captured, because that costs time.
pub(in crate::check) const MAX_STACKS: u32 = 64;

/// Ranges of requests, oldest first.
#[derive(Debug)]
pub(in crate::check) struct Ranges<K>(VecDeque<(u64, RangeId<K>)>);

impl<K> Default for Ranges<K> {
    fn default() -> Ranges<K> {
        Ranges(VecDeque::new())
    }
}

impl<K: Copy> Ranges<K> {
    /// Keeps a range of a request, and returns one that is too many.
    pub(in crate::check) fn keep(&mut self, message: u64, id: RangeId<K>) -> Option<RangeId<K>> {
        self.0.push_back((message, id));
        if self.0.len() > MAX_KEPT { self.0.pop_front().map(|(_, id)| id) } else { None }
    }

    /// The next range of a request before `known`.
    pub(in crate::check) fn over(&mut self, known: u64) -> Option<RangeId<K>> {
        let (message, id) = *self.0.front()?;
        if message >= known {
            return None;
        }
        self.0.pop_front();
        Some(id)
    }
}

/// A connected queue pair.
#[derive(Debug)]
pub(in crate::check) struct OrderedQp {
    pub(in crate::check) peer: PeerProcess,
    /// Requests before this one are over.
    ended: u64,
    /// What `ended` was at the completions that wait to be polled.
    unpolled: VecDeque<u64>,
    /// The program knows that requests before this one are over.
    pub(in crate::check) known: u64,
    /// The newest request with IBV_SEND_FENCE: READs and atomics before it are over when it begins, and when
    /// later requests begin.
    pub(in crate::check) fenced: u64,
    pub(in crate::check) remote: Ranges<Space>,
    pub(in crate::check) local: Ranges<()>,
    pub(in crate::check) stacks: u32,
    /// A WRITE of the peer of which packets are to come.
    pub(in crate::check) incoming: Option<Incoming>,
    pub(in crate::check) echo: Echo,
}

impl OrderedQp {
    pub(in crate::check) fn new(peer: PeerProcess) -> OrderedQp {
        OrderedQp {
            peer,
            ended: 0,
            unpolled: VecDeque::new(),
            known: 0,
            fenced: 0,
            remote: Ranges::default(),
            local: Ranges::default(),
            stacks: 0,
            incoming: None,
            echo: Echo::default(),
        }
    }

    /// Requests before this one are over, as far as can be told.
    pub(in crate::check) fn begins_at(&mut self, next: u64) {
        (self.ended, self.known) = (next, next);
    }

    pub(in crate::check) fn fence(&mut self, message: u64, request: &SendRequest<'_>) {
        if request.flags.contains(SendFlags::FENCE) {
            self.fenced = message;
        }
    }

    pub(in crate::check) fn completed(&mut self, released: u32) {
        self.ended = self.ended.saturating_add(released.max(1).into());
        self.unpolled.push_back(self.ended);
        if self.unpolled.len() > MAX_KEPT {
            self.unpolled.pop_front();
        }
    }

    pub(in crate::check) fn polled(&mut self) {
        if let Some(ended) = self.unpolled.pop_front() {
            self.known = self.known.max(ended);
        }
    }
}

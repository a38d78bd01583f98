//! The requests of one queue pair that are over, as far as the program knows.

use std::collections::VecDeque;

use pumice_platform::intervals::RangeId;
use pumice_transport::types::{SendFlags, SendRequest};

use super::accesses::IncomingWrite;
use super::accesses::PeerMemory;
use super::accesses::PeerProcess;
use super::echo::Echo;

/// Number of requests and completions that are remembered of a queue pair.
const MAX_RANGES: usize = 1 << 14;
/// Number of posts of a queue pair whose stacks are captured, because that costs time.
pub(in crate::check) const MAX_STACKS: u32 = 64;

/// The ranges of requests, oldest first.
#[derive(Debug)]
pub(in crate::check) struct RequestRanges<K>(VecDeque<(u64, RangeId<K>)>);

impl<K> Default for RequestRanges<K> {
    fn default() -> RequestRanges<K> {
        RequestRanges(VecDeque::new())
    }
}

impl<K: Copy> RequestRanges<K> {
    /// Adds a range of a request, and returns one that is too many.
    pub(in crate::check) fn push(&mut self, message: u64, id: RangeId<K>) -> Option<RangeId<K>> {
        self.0.push_back((message, id));
        if self.0.len() > MAX_RANGES { self.0.pop_front().map(|(_, id)| id) } else { None }
    }

    /// Takes the next range of a request before `known`.
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
    /// Number of the first request that is not over.
    ended: u64,
    /// Value of `ended` at each completion that waits to be polled.
    unpolled: VecDeque<u64>,
    /// Number of the first request that the program does not know to be over.
    pub(in crate::check) known: u64,
    /// Newest request with IBV_SEND_FENCE: READs and atomics before it are over when it begins, and when
    /// later requests begin.
    pub(in crate::check) fenced: u64,
    pub(in crate::check) remote: RequestRanges<PeerMemory>,
    pub(in crate::check) local: RequestRanges<()>,
    pub(in crate::check) stacks: u32,
    /// WRITE of the peer of which packets are to come.
    pub(in crate::check) incoming: Option<IncomingWrite>,
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
            remote: RequestRanges::default(),
            local: RequestRanges::default(),
            stacks: 0,
            incoming: None,
            echo: Echo::default(),
        }
    }

    /// Starts at the request `next`: the requests before it are over, as far as can be known.
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
        if self.unpolled.len() > MAX_RANGES {
            self.unpolled.pop_front();
        }
    }

    pub(in crate::check) fn polled(&mut self) {
        if let Some(ended) = self.unpolled.pop_front() {
            self.known = self.known.max(ended);
        }
    }
}

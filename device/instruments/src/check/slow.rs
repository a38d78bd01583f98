//! Slow ways: what works, and costs time. Looked for only if asked.

use pumice_calls::Call;

use super::checker::{Checker, Found};
use super::kind::{
    ONE_POST_PER_DOORBELL, POLLS_ONE_AT_A_TIME, REGISTERING_IN_LOOP, SHORT_WITHOUT_INLINE,
    SIGNAL_ON_EVERY_REQUEST,
};
use super::process::REGION;
use super::queues::{Posts, Qp};
use super::stack::Stack;

/// Registrations at one call site before that is told.
const MANY_REGISTRATIONS: u32 = 100;
/// Call sites of registrations that are counted.
const MAX_CALL_SITES: usize = 1024;
/// Requests or calls before that is told.
const MANY: u32 = 1000;
/// The shortest send queue whose requests need not all be signaled.
const LONG_SEND_QUEUE: u32 = 16;
/// Bytes of a request that any adapter takes inline.
const SHORT_BYTES: u32 = 64;
/// Calls in sequence that could have been one.
const LONG_RUN: u32 = 8;
/// Completions that still wait when a poll has taken one of them.
const SEVERAL: u64 = 4;

impl Checker {
    pub(super) fn count_registration(&mut self, made: &Stack) {
        let Some(first) = made.addresses().first() else { return };
        if self.registrations.len() >= MAX_CALL_SITES && !self.registrations.contains_key(first) {
            return;
        }
        let count = self.registrations.entry(*first).or_default();
        *count = count.saturating_add(1);
        if *count == MANY_REGISTRATIONS {
            let numbers = format!("memory was registered {MANY_REGISTRATIONS} times here");
            let (object, stack) = (REGION.to_owned(), made.clone());
            self.found(&REGISTERING_IN_LOOP, Found { object, numbers, stack, related: Vec::new() });
        }
    }

    pub(super) fn tell_signals(&mut self, qp: &Qp) {
        let is_every = qp.posted == qp.posted_signaled && qp.posted >= MANY.into();
        if is_every && qp.capacity.max_send_wr >= LONG_SEND_QUEUE {
            let numbers = format!("all {} send requests of {} made completions", qp.posted, qp.name);
            let (object, stack) = (qp.name.clone(), qp.made.clone());
            self.found(&SIGNAL_ON_EVERY_REQUEST, Found { object, numbers, stack, related: Vec::new() });
        }
    }

    /// A send request was posted whose payload is in registered memory.
    pub(super) fn posted_from_memory(&mut self, number: u32, length_bytes: u32) {
        let Some(qp) = self.qps.get_mut(&number).filter(|_| (1..=SHORT_BYTES).contains(&length_bytes)) else {
            return;
        };
        qp.short = qp.short.saturating_add(1);
        if qp.short == MANY {
            let object = qp.name.clone();
            let numbers = format!("{MANY} requests of {object} had {SHORT_BYTES} bytes or fewer, not inline");
            let stack = self.here();
            self.found(&SHORT_WITHOUT_INLINE, Found { object, numbers, stack, related: Vec::new() });
        }
    }

    /// The program makes a call.
    pub(super) fn look_at_posts(&mut self, call: Call, address: u64) {
        let Posts { address: before, requests, run, wasted } = self.posts;
        if call != Call::ibv_post_send {
            self.posts = Posts { wasted, ..Posts::default() };
            return;
        }
        let run = if before == address && requests == 1 { run.saturating_add(1) } else { 0 };
        let wasted = wasted.saturating_add(u32::from(run >= LONG_RUN));
        let is_told = wasted == MANY && self.posts.wasted < MANY;
        self.posts = Posts { address, requests: 0, run, wasted };
        if is_told {
            let object = self.objects.at(address).map(|object| object.name()).unwrap_or_default();
            let numbers =
                format!("{MANY} calls posted one request each, right after {LONG_RUN} others that did");
            let stack = self.here();
            self.found(&ONE_POST_PER_DOORBELL, Found { object, numbers, stack, related: Vec::new() });
        }
    }

    /// The program polls again; the call before took so many completions, and so many wait.
    pub(super) fn look_at_poll(&mut self, handle: u32, taken: u32, waiting: u64) {
        let Some(cq) = self.cqs.get_mut(&handle).filter(|_| taken == 1 && waiting >= SEVERAL) else { return };
        cq.small_polls = cq.small_polls.saturating_add(1);
        if cq.small_polls == MANY {
            let object = cq.name.clone();
            let numbers = format!("{MANY} calls took one completion of {object} where {SEVERAL} more waited");
            let stack = self.here();
            self.found(&POLLS_ONE_AT_A_TIME, Found { object, numbers, stack, related: Vec::new() });
        }
    }
}

//! The checks for slow ways to post requests, to send payload and to poll.

use pumice_calls::Call;
use pumice_transport::types::WorkCompletion;

use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::{
    ONE_POST_PER_DOORBELL, POLLS_ONE_AT_A_TIME, SHORT_WITHOUT_INLINE, SIGNAL_ON_EVERY_REQUEST,
};
use crate::check::notified::{Check, PerQueue, QueueName};

/// Number of requests or calls that go a slow way before it is reported.
pub(super) const MANY: u32 = 1000;

/// Number of payload bytes that any adapter takes inline.
const SHORT_BYTES: u32 = 64;

/// The check for short payload that the program does not send inline.
#[derive(Debug, Default)]
pub(super) struct SlowPayload {
    counts: PerQueue<u32>,
}

impl Check for SlowPayload {
    fn forget(&mut self, of: Option<QueueName>) {
        self.counts.forget(of);
    }

    fn posted_from_memory(&mut self, context: &mut CheckContext, number: u32, bytes: u32) {
        if !context.checks_performance || !(1..=SHORT_BYTES).contains(&bytes) {
            return;
        }
        let Some(qp) = context.qps.get(&number) else { return };
        let count = self.counts.of(QueueName::Qp(number));
        *count = count.saturating_add(1);
        if *count == MANY {
            let object = qp.name.clone();
            let numbers = format!("{MANY} requests of {object} had {SHORT_BYTES} bytes or fewer, not inline");
            let stack = context.here();
            context
                .found(&SHORT_WITHOUT_INLINE, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}

/// Number of completions that still wait when a poll has taken one of them.
const SEVERAL: u64 = 4;

/// The check for programs that poll completions one at a time.
#[derive(Debug, Default)]
pub(super) struct SlowPolls {
    queues: PerQueue<PollState>,
}

#[derive(Debug, Default)]
struct PollState {
    /// Number of completions that the last call took.
    taken: u32,
    /// Number of calls that took one of several.
    small_polls: u32,
}

impl Check for SlowPolls {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn polled(&mut self, context: &mut CheckContext, handle: u32, _: &WorkCompletion) {
        if context.checks_performance && context.cqs.contains_key(&handle) {
            let queue = self.queues.of(QueueName::Cq(handle));
            queue.taken = queue.taken.saturating_add(1);
        }
    }

    fn cq_polled(&mut self, context: &mut CheckContext, handle: u32) {
        if !context.checks_performance {
            return;
        }
        let queue = self.queues.of(QueueName::Cq(handle));
        let taken = std::mem::take(&mut queue.taken);
        let Some(cq) = context.cqs.get(&handle).filter(|cq| taken == 1 && cq.unpolled >= SEVERAL) else {
            return;
        };
        queue.small_polls = queue.small_polls.saturating_add(1);
        if queue.small_polls == MANY {
            let object = cq.name.clone();
            let numbers = format!("{MANY} calls took one completion of {object} where {SEVERAL} more waited");
            let stack = context.here();
            context.found(&POLLS_ONE_AT_A_TIME, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}

/// Number of calls in sequence that could have been one.
const LONG_RUN: u32 = 8;

/// The check for calls of `ibv_post_send` in sequence, without another call between them.
#[derive(Debug, Default)]
pub(super) struct SlowPosts {
    /// Address of the queue pair.
    address: u64,
    /// Number of requests that the last call posted.
    requests: u32,
    /// Number of calls in sequence that posted one request each.
    run: u32,
    /// Number of calls in long sequences.
    wasted: u32,
}

impl Check for SlowPosts {
    fn send_posted(&mut self, _: &mut CheckContext, _: u32, _: bool) {
        self.requests = self.requests.saturating_add(1);
    }

    fn enters(&mut self, context: &mut CheckContext, call: Call, address: u64) {
        if !context.checks_performance {
            return;
        }
        let SlowPosts { address: before, requests, run, wasted: wasted_before } = *self;
        if call != Call::ibv_post_send {
            *self = SlowPosts { wasted: wasted_before, ..SlowPosts::default() };
            return;
        }
        let run = if before == address && requests == 1 { run.saturating_add(1) } else { 0 };
        let wasted = wasted_before.saturating_add(u32::from(run >= LONG_RUN));
        *self = SlowPosts { address, requests: 0, run, wasted };
        if wasted == MANY && wasted_before < MANY {
            let object = context.objects.at(address).map(|object| object.name()).unwrap_or_default();
            let numbers =
                format!("{MANY} calls posted one request each, right after {LONG_RUN} others that did");
            let stack = context.here();
            context
                .found(&ONE_POST_PER_DOORBELL, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}

/// Length of the shortest send queue whose requests need not all be signaled.
const LONG_SEND_QUEUE: u32 = 16;

/// The check for programs that ask for a completion of each send request.
#[derive(Debug, Default)]
pub(super) struct SlowSignals {
    /// Numbers of posted and of signaled send requests.
    posted: PerQueue<(u64, u64)>,
}

impl Check for SlowSignals {
    fn forget(&mut self, of: Option<QueueName>) {
        self.posted.forget(of);
    }

    fn send_posted(&mut self, context: &mut CheckContext, number: u32, is_signaled: bool) {
        if !context.checks_performance {
            return;
        }
        let (posted, signaled) = self.posted.of(QueueName::Qp(number));
        *posted = posted.saturating_add(1);
        *signaled = signaled.saturating_add(is_signaled.into());
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let (posted, signaled) = *self.posted.of(QueueName::Qp(number));
        let is_every = posted == signaled && posted >= MANY.into();
        if is_every && qp.capacity.max_send_wr >= LONG_SEND_QUEUE {
            let numbers = format!("all {posted} send requests of {} made completions", qp.name);
            let (object, stack) = (qp.name.clone(), qp.calls.made.clone());
            context.found(
                &SIGNAL_ON_EVERY_REQUEST,
                FindingParts { object, numbers, stack, related: Vec::new() },
            );
        }
    }
}

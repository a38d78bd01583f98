//! Activity of the two ends in a round: stream messages, exchange single ones, receive.
//!
//! The stream of the measuring end: keeps requests outstanding on all queue pairs.

use std::time::{Duration, Instant};

use pumice_transport::types::WorkCompletion;

use crate::endpoint::{BufferSelection, Endpoint, Post};
use crate::error::Result;
use crate::plan::{MAX_OUTSTANDING, Operation, Plan, Service};

/// End of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RoundLimit {
    Time(Duration),
    /// After exactly this many messages; in a stream, each has its number as immediate data if it is a SEND.
    Messages(u64),
}

/// Messages that were sent and are complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendTotals {
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
}

/// Number of bytes of unreliable services under way: there, only this program keeps the receiver from being
/// overrun.
const WINDOW_BYTES: usize = 256 << 10;
/// Number of credits per window.
const CREDITS_PER_WINDOW: u64 = 4;
/// Time after which a window without an answer counts as lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// Number of requests per completion, where the depth allows it.
const SIGNAL_EVERY: usize = 16;
/// Number of requests posted between two polls for completions.
const POSTS_PER_POLL: u64 = 16;

/// Returns the number of messages that an unreliable service may have under way.
pub(crate) fn window_messages(plan: &Plan) -> u64 {
    // The kernel charges much more than its size for the smallest packet.
    let charged_bytes = plan.size_bytes.max(512);
    ((WINDOW_BYTES / charged_bytes) as u64).clamp(1, plan.outstanding() as u64)
}

/// Returns the interval of messages of an unreliable service that ask the receiver for credit.
pub(crate) fn credit_every(plan: &Plan) -> u64 {
    (window_messages(plan) / CREDITS_PER_WINDOW).max(1)
}

/// Sends over the first `qp_count` queue pairs until the limit, and until all requests are complete.
pub(crate) fn send(
    end: &mut Endpoint,
    plan: &Plan,
    qp_count: usize,
    limit: RoundLimit,
) -> Result<SendTotals> {
    end.drain()?;
    RoundSender::new(end, plan, qp_count, limit).run()
}

/// Requests of one queue pair.
#[derive(Debug, Clone, Copy, Default)]
struct QpSendState {
    outstanding: u32,
    /// Number of these since the last request that makes a completion.
    unsignaled: u32,
}

struct RoundSender<'a> {
    end: &'a mut Endpoint,
    plan: &'a Plan,
    limit: RoundLimit,
    queue_pairs: Vec<QpSendState>,
    outstanding: usize,
    next_qp: usize,
    next_message: u64,
    signal_every: u32,
    /// Number of messages that the receiver of an unreliable service has seen.
    credited: u64,
    last_credit: Instant,
}

impl<'a> RoundSender<'a> {
    fn new(end: &'a mut Endpoint, plan: &'a Plan, qp_count: usize, limit: RoundLimit) -> RoundSender<'a> {
        // Results of atomics are compared at their completions. Many queue pairs must not use up the limit
        // for all with requests that never complete.
        let few = matches!(limit, RoundLimit::Messages(_)) || plan.operation == Operation::Atomic;
        let most = if few { 1 } else { SIGNAL_EVERY };
        let signal_every = most.min(plan.depth / 4).min(MAX_OUTSTANDING / (4 * qp_count.max(1))).max(1);
        RoundSender {
            end,
            plan,
            limit,
            queue_pairs: vec![QpSendState::default(); qp_count],
            outstanding: 0,
            next_qp: 0,
            next_message: 0,
            signal_every: signal_every as u32,
            credited: 0,
            last_credit: Instant::now(),
        }
    }

    fn run(mut self) -> Result<SendTotals> {
        let start = Instant::now();
        loop {
            let now = Instant::now();
            let left = match self.limit {
                RoundLimit::Time(duration) if now - start < duration => u64::MAX,
                RoundLimit::Time(_) => 0,
                RoundLimit::Messages(count) => count.saturating_sub(self.next_message),
            };
            if left == 0 {
                if self.outstanding == 0 {
                    break;
                }
                self.signal_the_rest()?;
            }
            let list = left.min(self.plan.post_list as u64);
            let mut posted = 0;
            while list > 0 && posted < POSTS_PER_POLL && posted + list <= left && self.has_room(list) {
                self.post(list)?;
                posted += list;
            }
            self.poll(now)?;
        }
        Ok(SendTotals { messages: self.next_message, seconds: start.elapsed().as_secs_f64() })
    }

    fn has_room(&self, count: u64) -> bool {
        let on_qp = self.queue_pairs.get(self.next_qp).map_or(0, |on_queue| on_queue.outstanding as usize);
        let fits = |outstanding: usize, most: usize| outstanding == 0 || outstanding + count as usize <= most;
        fits(on_qp, self.plan.depth)
            && fits(self.outstanding, self.plan.outstanding())
            && self.has_credit(count)
    }

    fn has_credit(&self, count: u64) -> bool {
        let window = window_messages(self.plan).max(count);
        self.plan.service == Service::Rc || self.next_message + count <= self.credited + window
    }

    fn post(&mut self, count: u64) -> Result<()> {
        let qp = self.next_qp;
        self.next_qp = if qp + 1 >= self.queue_pairs.len() { 0 } else { qp + 1 };
        self.post_on(qp, count, false)
    }

    fn post_on(&mut self, qp: usize, count: u64, signaled: bool) -> Result<()> {
        let Some(on_queue) = self.queue_pairs.get_mut(qp) else { return Ok(()) };
        on_queue.outstanding += count as u32;
        on_queue.unsignaled += count as u32;
        let retires = (signaled || on_queue.unsignaled >= self.signal_every).then_some(on_queue.unsignaled);
        if retires.is_some() {
            on_queue.unsignaled = 0;
        }
        self.outstanding += count as usize;
        let first = self.next_message;
        self.next_message += count;
        let buffers = match self.plan.operation {
            Operation::Atomic => BufferSelection::OfQueuePair,
            _ => BufferSelection::All,
        };
        let numbered =
            matches!(self.limit, RoundLimit::Messages(_)) && self.plan.operation == Operation::Send;
        let imm_every = match self.plan.service {
            _ if numbered => 1,
            Service::Rc => 0,
            Service::Uc | Service::Ud => credit_every(self.plan),
        };
        self.end.post(&Post { qp, first, count, buffers, imm_every, retires })
    }

    /// Posts requests with completions for those that were posted without, at the end of a timed round.
    fn signal_the_rest(&mut self) -> Result<()> {
        for qp in 0..self.queue_pairs.len() {
            if self.queue_pairs.get(qp).is_some_and(|on_queue| on_queue.unsignaled > 0) {
                self.post_on(qp, 1, true)?;
            }
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> Result<()> {
        let mut done = [WorkCompletion::default(); 32];
        let count = self.end.poll_sends(&mut done)?;
        for completion in done.iter().take(count) {
            let (qp, retired) = Post::of_completion(completion.wr_id);
            if let Some(on_queue) = self.queue_pairs.get_mut(qp) {
                on_queue.outstanding = on_queue.outstanding.saturating_sub(retired);
            }
            self.outstanding = self.outstanding.saturating_sub(retired as usize);
            if self.plan.operation == Operation::Atomic {
                self.end.check_fetched(qp, u64::from(retired))?;
            }
        }
        if self.plan.service != Service::Rc && !self.has_credit(1) {
            self.take_credit(now)?;
        }
        Ok(())
    }

    fn take_credit(&mut self, now: Instant) -> Result<()> {
        let mut credits = [WorkCompletion::default(); 8];
        let count = self.end.poll_receives(&mut credits)?;
        for credit in credits.iter().take(count) {
            self.credited = self.credited.max(Endpoint::number_of(credit) + 1);
            self.last_credit = now;
            self.end.post_receive_again(credit)?;
        }
        if now.saturating_duration_since(self.last_credit) > LOST_AFTER {
            self.credited = self.next_message;
            self.last_credit = now;
        }
        Ok(())
    }
}

pub(crate) mod latency;
pub(crate) mod receiver;

//! The measuring end's stream: keeps requests outstanding on all queue pairs.

use std::time::{Duration, Instant};

use pumice_transport::types::WorkCompletion;

use super::endpoint::{Endpoint, Post, Slots};
use super::plan::{MAX_OUTSTANDING, Operation, Plan, Service};

/// How long a stream goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    Time(Duration),
    /// Exactly so many messages, each with its number as immediate data if it is a SEND.
    Messages(u64),
}

/// What was sent and is complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
}

/// Bytes of unreliable services under way: there, only this program keeps the receiver from being overrun.
const WINDOW_BYTES: usize = 256 << 10;
/// Credits per window.
const CREDITS_PER_WINDOW: u64 = 4;
/// A window without an answer for this long is lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// Requests per completion, where the depth allows it.
const SIGNAL_EVERY: usize = 16;
/// Requests posted between two looks at the completions.
const POSTS_PER_POLL: u64 = 16;

/// Messages that an unreliable service may have under way.
pub(crate) fn window_messages(plan: &Plan) -> u64 {
    // The kernel charges much more than its size for the smallest packet.
    let charged_bytes = plan.size_bytes.max(512);
    ((WINDOW_BYTES / charged_bytes) as u64).clamp(1, plan.outstanding() as u64)
}

/// Every so many messages of an unreliable service ask the receiver for credit.
pub(crate) fn credit_every(plan: &Plan) -> u64 {
    (window_messages(plan) / CREDITS_PER_WINDOW).max(1)
}

/// Sends over the first `qp_count` queue pairs until the limit, and until everything is complete.
///
/// # Errors
/// A sentence.
pub(crate) fn send(end: &mut Endpoint, plan: &Plan, qp_count: usize, limit: Limit) -> Result<Sent, String> {
    end.drain()?;
    Sender::new(end, plan, qp_count, limit).run()
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    outstanding: u32,
    /// Of these, since the last request that makes a completion.
    unsignaled: u32,
}

struct Sender<'a> {
    end: &'a mut Endpoint,
    plan: &'a Plan,
    limit: Limit,
    accounts: Vec<Account>,
    outstanding: usize,
    next_qp: usize,
    next_message: u64,
    signal_every: u32,
    /// Messages that the receiver of an unreliable service has seen.
    credited: u64,
    last_credit: Instant,
}

impl<'a> Sender<'a> {
    fn new(end: &'a mut Endpoint, plan: &'a Plan, qp_count: usize, limit: Limit) -> Sender<'a> {
        // Results of atomics are looked at with their completions. Many queue pairs must not use up what
        // all may have outstanding with requests that never complete.
        let few = matches!(limit, Limit::Messages(_)) || plan.operation == Operation::Atomic;
        let most = if few { 1 } else { SIGNAL_EVERY };
        let signal_every = most.min(plan.depth / 4).min(MAX_OUTSTANDING / (4 * qp_count.max(1))).max(1);
        Sender {
            end,
            plan,
            limit,
            accounts: vec![Account::default(); qp_count],
            outstanding: 0,
            next_qp: 0,
            next_message: 0,
            signal_every: signal_every as u32,
            credited: 0,
            last_credit: Instant::now(),
        }
    }

    fn run(mut self) -> Result<Sent, String> {
        let start = Instant::now();
        loop {
            let now = Instant::now();
            let left = match self.limit {
                Limit::Time(duration) if now - start < duration => u64::MAX,
                Limit::Time(_) => 0,
                Limit::Messages(count) => count.saturating_sub(self.next_message),
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
        Ok(Sent { messages: self.next_message, seconds: start.elapsed().as_secs_f64() })
    }

    fn has_room(&self, count: u64) -> bool {
        let on_qp = self.accounts.get(self.next_qp).map_or(0, |account| account.outstanding as usize);
        let fits = |outstanding: usize, most: usize| outstanding == 0 || outstanding + count as usize <= most;
        fits(on_qp, self.plan.depth)
            && fits(self.outstanding, self.plan.outstanding())
            && self.has_credit(count)
    }

    fn has_credit(&self, count: u64) -> bool {
        let window = window_messages(self.plan).max(count);
        self.plan.service == Service::Rc || self.next_message + count <= self.credited + window
    }

    fn post(&mut self, count: u64) -> Result<(), String> {
        let qp = self.next_qp;
        self.next_qp = if qp + 1 >= self.accounts.len() { 0 } else { qp + 1 };
        self.post_on(qp, count, false)
    }

    fn post_on(&mut self, qp: usize, count: u64, signaled: bool) -> Result<(), String> {
        let Some(account) = self.accounts.get_mut(qp) else { return Ok(()) };
        account.outstanding += count as u32;
        account.unsignaled += count as u32;
        let retires = (signaled || account.unsignaled >= self.signal_every).then_some(account.unsignaled);
        if retires.is_some() {
            account.unsignaled = 0;
        }
        self.outstanding += count as usize;
        let first = self.next_message;
        self.next_message += count;
        let slots = match self.plan.operation {
            Operation::Atomic => Slots::OfQueuePair,
            _ => Slots::All,
        };
        let numbered = matches!(self.limit, Limit::Messages(_)) && self.plan.operation == Operation::Send;
        let imm_every = match self.plan.service {
            _ if numbered => 1,
            Service::Rc => 0,
            Service::Uc | Service::Ud => credit_every(self.plan),
        };
        self.end.post(&Post { qp, first, count, slots, imm_every, retires })
    }

    /// At the end of a timed round: completions for requests that were posted without.
    fn signal_the_rest(&mut self) -> Result<(), String> {
        for qp in 0..self.accounts.len() {
            if self.accounts.get(qp).is_some_and(|account| account.unsignaled > 0) {
                self.post_on(qp, 1, true)?;
            }
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> Result<(), String> {
        let mut done = [WorkCompletion::default(); 32];
        let count = self.end.poll_sends(&mut done)?;
        for completion in done.iter().take(count) {
            let (qp, retired) = Post::of_completion(completion.wr_id);
            if let Some(account) = self.accounts.get_mut(qp) {
                account.outstanding = account.outstanding.saturating_sub(retired);
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

    fn take_credit(&mut self, now: Instant) -> Result<(), String> {
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

//! Threads that wait for what does not come.

use pumice_calls::Call;
use pumice_platform::call_stack::Stack;
use pumice_transport::types::WorkCompletion;

use super::takers::Takers;
use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{FindingKind, LOST_WAKEUP, WAITS_IN_VAIN};
use crate::check::notified::{Check, ExplainedFailure};
use crate::check::per_queue::QueueName;
use crate::waits::{StalledWait, WaitTarget};

/// Number of looks, one each 25 ms, until a wait for others is reported: two seconds, after which a program
/// that waits only for a while goes on.
const SETTLE_ROUNDS: u32 = 80;

/// The check for waits in vain, where no other finding is about the same queue.
#[derive(Debug, Default)]
pub(super) struct StalledWaits {
    /// Finding that is not reported yet, and for how many looks.
    held: Option<HeldFinding>,
    is_ended_by_signal: bool,
    takers: Takers,
}

#[derive(Debug)]
struct HeldFinding {
    kind: &'static FindingKind,
    found: FindingParts,
    rounds: u32,
}

impl Check for StalledWaits {
    fn forget(&mut self, of: Option<QueueName>) {
        self.takers.forget(of);
    }

    fn cq_polled(&mut self, context: &mut CheckContext, cq: u32) {
        self.takers.polls(context, cq);
    }

    fn polled(&mut self, context: &mut CheckContext, cq: u32, _: &WorkCompletion) {
        self.takers.takes(context, cq);
    }

    fn forked(&mut self, _: &mut CheckContext) {
        *self = StalledWaits::default();
    }

    fn enters(&mut self, _: &mut CheckContext, call: Call, _: u64) {
        if self.held.is_some() && !call.polls() {
            self.held = None;
        }
    }

    fn wait_stalled(&mut self, context: &mut CheckContext, stalled_wait: &StalledWait, stack: &Stack) {
        let own = context.own;
        let object = match stalled_wait.about {
            // A thread, and no queue pair.
            WaitTarget::Others(0) => Some("a thread".to_owned()),
            WaitTarget::Request(number) | WaitTarget::Others(number) => {
                context.qps.get(&number).map(|qp| qp.name.clone())
            }
            WaitTarget::Completions(number) => context.cqs.get(&own.handle(number)).map(|cq| cq.name.clone()),
            WaitTarget::Answer(_) | WaitTarget::Rejected(_) => Some("connection".to_owned()),
        };
        let object = object.unwrap_or_else(|| "a thread".to_owned());
        if stalled_wait.is_asleep && report_asleep(context, stalled_wait, stack) {
            return;
        }
        if !context.is_found_of(std::slice::from_ref(&object)) {
            let (numbers, stack) = (stalled_wait.sentence.clone(), stack.clone());
            let found = FindingParts { object, numbers, stack, related: Vec::new() };
            match stalled_wait.about {
                WaitTarget::Others(_) => {
                    let (kind, found) = self.takers.explain(context, found);
                    self.held = Some(HeldFinding { kind, found, rounds: 0 });
                }
                _ => context.found(&WAITS_IN_VAIN, found),
            }
        }
    }

    fn is_ended_by_signal(&mut self, _: &mut CheckContext) {
        self.is_ended_by_signal = true;
    }

    fn settles(&mut self, context: &mut CheckContext, is_over: bool, _: &mut Vec<ExplainedFailure>) {
        let is_ended = is_over && self.is_ended_by_signal;
        if let Some(held) = &mut self.held {
            held.rounds += 1;
        }
        if let Some(HeldFinding { kind, found, .. }) =
            self.held.take_if(|held| is_ended || held.rounds >= SETTLE_ROUNDS)
        {
            context.found(kind, found);
        }
    }
}

/// Reports a thread that sleeps beside completions of a queue that the program has armed; returns false if
/// the wait is of another kind. A thread in poll(2) has no stack that could be read; the call site that armed
/// the queue is the nearest one known.
fn report_asleep(context: &mut CheckContext, stalled_wait: &StalledWait, stack: &Stack) -> bool {
    let WaitTarget::Completions(number) = stalled_wait.about else { return false };
    let Some(cq) = context.cqs.get(&context.own.handle(number)) else { return false };
    if !cq.was_armed || cq.channel == 0 {
        return false;
    }
    let object = cq.name.clone();
    let call_site = if stack.is_unknown() { cq.armed_at.clone() } else { stack.clone() };
    let related = vec![
        related("the queue was armed here", &cq.armed_at),
        related(format!("{object} was made here"), &cq.made),
    ];
    if !context.is_found_of(std::slice::from_ref(&object)) {
        let numbers = stalled_wait.sentence.clone();
        context.found(&LOST_WAKEUP, FindingParts { object, numbers, stack: call_site, related });
    }
    true
}

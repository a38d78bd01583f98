//! Threads that sleep while completions wait, and receives that are posted too late.
//!
//! Threads that sleep while completions wait: in `ibv_get_cq_event`, or in poll(2) for a completion event
//! which does not come.

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, related, waiting};
use crate::check::kind::{LOST_WAKEUP, RECEIVE_TOO_LATE};
use crate::check::notified::{Check, PerQueue, QueueName};
use crate::check::queues::{CqNotifyState, Qp};

/// Number of late receives before they are reported.
const LATE_POSTS: u64 = 4;
/// Divisor of the completed receives: the late ones have to be at least this part of them to be reported.
const LATE_SHARE: u64 = 8;
/// Shortest wait of a message for its receive that is reported by itself, in ns. The min_rnr_timer of
/// librdmacm's queue pairs is 655.36 ms.
const LONG_NS: u64 = 250_000_000;
/// Number of stacks of late receives that are reported for a queue pair.
const LATE_STACKS: u32 = 16;

/// The check for messages that keep coming before the program has posted receives for them.
#[derive(Debug, Default)]
pub(super) struct LateReceives {
    queue_pairs: PerQueue<LateReceiveState>,
}

#[derive(Debug, Default)]
struct LateReceiveState {
    /// Number of messages that found no receive.
    unready: u64,
    /// A message has found no receive since one was last posted.
    is_late: bool,
    /// Device time, in ns, at which the first such message came.
    since_ns: u64,
    late_posts: u64,
    /// Number of stacks that were reported.
    notified: u32,
}

impl Check for LateReceives {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queue_pairs.forget(of);
    }

    fn found_no_receive(&mut self, context: &mut CheckContext, number: u32) {
        let own = self.queue_pairs.of(QueueName::Qp(number));
        own.unready = own.unready.saturating_add(1);
        if !std::mem::replace(&mut own.is_late, true) {
            own.since_ns = context.now_ns;
        }
    }

    fn receive_posted(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        if !std::mem::replace(&mut own.is_late, false) {
            return;
        }
        own.late_posts = own.late_posts.saturating_add(1);
        let waited_ns = context.now_ns.saturating_sub(own.since_ns);
        if waited_ns >= LONG_NS && own.notified == 0 && qp.service == "RC" && !is_reported(context, qp) {
            own.notified += 1;
            return report_long(context, number, waited_ns);
        }
        if own.late_posts < LATE_POSTS || own.late_posts.saturating_mul(LATE_SHARE) < qp.counts.received {
            return;
        }
        if own.notified >= LATE_STACKS {
            let object = qp.name.clone();
            return context.found_again(&RECEIVE_TOO_LATE, &object);
        }
        own.notified += 1;
        let unready = own.unready;
        let stack = context.here();
        report(context, number, unready, stack);
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(made) = context.qps.get(&number).map(|qp| qp.calls.made.clone()) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        if own.unready >= LATE_POSTS && own.notified == 0 && own.is_late {
            report(context, number, own.unready, made);
        }
    }
}

/// Reports whether another finding names a queue pair or its peer, and so may explain why a message waited.
fn is_reported(context: &CheckContext, qp: &Qp) -> bool {
    let peer = qp.destination.filter(|_| qp.peer_is_here).and_then(|peer| context.qps.get(&peer));
    let names: Vec<String> = std::iter::once(qp).chain(peer).map(|qp| qp.name.clone()).collect();
    context.is_found_of(&names)
}

/// Reports that a message waited for a long time until this receive was posted.
fn report_long(context: &mut CheckContext, number: u32, waited_ns: u64) {
    let stack = context.here();
    let Some(qp) = context.qps.get(&number) else { return };
    let numbers = format!(
        "a message came to {} ({}) {} ms before this receive was posted: its sender pauses for min_rnr_timer \
         each time that it finds none",
        qp.name,
        qp.service,
        waited_ns / 1_000_000
    );
    let related = vec![related(format!("{} was made here", qp.name), &qp.calls.made)];
    let object = qp.name.clone();
    context.found(&RECEIVE_TOO_LATE, FindingParts { object, numbers, stack, related });
}

fn report(context: &mut CheckContext, number: u32, unready: u64, stack: Stack) {
    let Some(qp) = context.qps.get(&number) else { return };
    let numbers = format!(
        "{unready} messages came to {} ({}) without a receive, {} were received",
        qp.name, qp.service, qp.counts.received
    );
    let related = vec![related(format!("{} was made here", qp.name), &qp.calls.made)];
    let object = qp.name.clone();
    context.found(&RECEIVE_TOO_LATE, FindingParts { object, numbers, stack, related });
}

/// Number of samples of a sleeping thread, ten a second, without a change of a queue before the queue is
/// reported.
const ROUNDS_AT_REST: u32 = 10;
/// Number of samples from another thread, ten a second, without a change of a queue before the check looks
/// for a thread that sleeps.
const ROUNDS_FROM_ASIDE: u32 = 15;

/// The check for lost wakeups. It reports one for each completion queue.
#[derive(Debug, Default)]
pub(super) struct LostWakeups {
    /// A queue was armed; until then polls need not be recorded.
    was_armed: bool,
    queues: PerQueue<SleepState>,
}

#[derive(Debug, Default)]
struct SleepState {
    /// Number of completions that waited when the queue was last armed, unless it was polled since, and how
    /// many of them raised an event at once.
    armed_over: u64,
    fired_late: u64,
    /// Activity of the queue at the last sample of a sleeping thread, and number of samples in sequence at
    /// which it was the same.
    activity_seen: u64,
    rounds_at_rest: u32,
    /// Activity and number of samples, for samples from another thread.
    rest: (u64, u32),
    is_reported: bool,
}

impl Check for LostWakeups {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn cq_polled(&mut self, _: &mut CheckContext, handle: u32) {
        if !self.was_armed {
            return;
        }
        let queue = self.queues.of(QueueName::Cq(handle));
        (queue.armed_over, queue.fired_late) = (0, 0);
    }

    fn cq_armed(&mut self, context: &mut CheckContext, handle: u32) {
        self.was_armed = true;
        let Some(cq) = context.cqs.get(&handle) else { return };
        let queue = self.queues.of(QueueName::Cq(handle));
        (queue.armed_over, queue.fired_late) = (cq.unpolled, 0);
    }

    fn event_raised(&mut self, context: &mut CheckContext, handle: u32) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let queue = self.queues.of(QueueName::Cq(handle));
        if queue.armed_over == cq.unpolled {
            // No completion has come since, so the event is for those that were there.
            queue.fired_late = queue.armed_over;
        }
    }

    /// Handles an event that the program may get: the device made it at the arming, for completions that were
    /// there, and the program did not poll since.
    fn event_delivered(&mut self, context: &mut CheckContext, handle: u32) {
        let queue = self.queues.of(QueueName::Cq(handle));
        let count = std::mem::take(&mut queue.fired_late);
        if count == 0 || std::mem::replace(&mut queue.is_reported, true) {
            return;
        }
        let stack = context.here();
        let Some(cq) = context.cqs.get(&handle) else { return };
        let object = cq.name.clone();
        let numbers = format!(
            "{} in {object} since before it was armed, and the program sleeps without a poll; this device \
             made an event for them (fires_late), others do not",
            waiting(count)
        );
        let related = vec![
            related("the queue was armed here", &cq.armed_at),
            related(format!("{object} was made here"), &cq.made),
        ];
        context.found(&LOST_WAKEUP, FindingParts { object, numbers, stack, related });
    }

    fn sleeps(&mut self, context: &mut CheckContext, channel: u64, is_long: bool) {
        let mut stuck = Vec::new();
        let is_waking = context.cqs.values().any(|cq| cq.channel == channel && cq.events_queued > 0);
        for (handle, cq) in context.cqs.iter().filter(|(_, cq)| cq.channel == channel) {
            let queue = self.queues.of(QueueName::Cq(*handle));
            let is_at_rest = cq.activity == queue.activity_seen;
            queue.rounds_at_rest = if is_at_rest { queue.rounds_at_rest.saturating_add(1) } else { 0 };
            queue.activity_seen = cq.activity;
            let wait_stalled = cq.unpolled > 0 && cq.was_armed && cq.armed != CqNotifyState::Solicited;
            let is_stuck = wait_stalled && queue.rounds_at_rest >= ROUNDS_AT_REST;
            if is_long && !is_waking && is_stuck && !queue.is_reported {
                queue.is_reported = true;
                stuck.push(*handle);
            }
        }
        for handle in stuck {
            report_asleep(context, handle);
        }
    }

    fn collect_waiting(&mut self, context: &CheckContext, waiting: &mut Vec<(u32, i32)>) {
        for (handle, cq) in context.cqs.iter() {
            let Some(descriptor) = context.channels.get(&cq.channel) else { continue };
            let queue = self.queues.of(QueueName::Cq(*handle));
            let is_at_rest = queue.rest.0 == cq.activity;
            queue.rest = (cq.activity, if is_at_rest { queue.rest.1.saturating_add(1) } else { 0 });
            let wait_stalled = cq.unpolled > 0 && cq.armed == CqNotifyState::Any && cq.events_queued == 0;
            if wait_stalled && queue.rest.1 >= ROUNDS_FROM_ASIDE && !queue.is_reported {
                waiting.push((*handle, *descriptor));
            }
        }
    }

    fn sleeps_in_poll(&mut self, context: &mut CheckContext, handle: u32) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        if std::mem::replace(&mut self.queues.of(QueueName::Cq(handle)).is_reported, true) {
            return;
        }
        let (object, count, stack) = (cq.name.clone(), cq.unpolled, cq.armed_at.clone());
        let numbers = format!(
            "{} in {object}; they came before it was armed, here, so only a further completion will wake the \
             thread that sleeps until the channel's descriptor is readable",
            waiting(count)
        );
        let related = vec![related(format!("{object} was made here"), &cq.made)];
        context.found(&LOST_WAKEUP, FindingParts { object, numbers, stack, related });
    }
}

fn report_asleep(context: &mut CheckContext, handle: u32) {
    let stack = context.here();
    let Some(cq) = context.cqs.get(&handle) else { return };
    let (object, count) = (cq.name.clone(), cq.unpolled);
    let state = match cq.armed {
        CqNotifyState::No => "it is not armed, so no completion will wake the thread",
        _ => "they came before it was armed, so only a further completion will wake the thread",
    };
    let related = vec![related(format!("{object} was made here"), &cq.made)];
    let numbers = format!("{} in {object}; {state}", waiting(count));
    context.found(&LOST_WAKEUP, FindingParts { object, numbers, stack, related });
}

//! Threads that sleep while completions wait: in `ibv_get_cq_event`, or in poll(2) for a completion event
//! which does not come.

use crate::check::context::{CheckContext, FindingParts, related, waiting};
use crate::check::kind::LOST_WAKEUP;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};
use crate::check::queues::CqNotifyState;

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

//! Threads that sleep while completions wait: in `ibv_get_cq_event`, or in poll(2) for a completion event
//! which does not come.

use crate::check::context::{Context, Found, related, waiting};
use crate::check::kept::{Kept, Of};
use crate::check::kind::LOST_WAKEUP;
use crate::check::queues::Armed;
use crate::check::told::Check;

/// Looks of a sleeping thread, ten a second, at which nothing has happened to a queue, before it is told.
const LOOKS_AT_REST: u32 = 10;
/// Looks from aside, ten a second, at which nothing has happened to a queue, before it is asked who sleeps.
const LOOKS_FROM_ASIDE: u32 = 15;

/// A wakeup is lost. It is told once of each completion queue.
#[derive(Debug, Default)]
pub(super) struct Asleep {
    /// A queue was armed: until then there is nothing to keep of polls.
    was_armed: bool,
    queues: Kept<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Completions that waited when it was last armed, unless it was polled since, and those of them for
    /// which it made an event at once.
    armed_over: u64,
    fired_late: u64,
    /// Its activity at the last look of a thread that sleeps, and looks in sequence at which it was the same.
    activity_seen: u64,
    looks_at_rest: u32,
    /// The same of looks from aside.
    rest: (u64, u32),
    is_told: bool,
}

impl Check for Asleep {
    fn forget(&mut self, of: Option<Of>) {
        self.queues.forget(of);
    }

    fn cq_polled(&mut self, _: &mut Context, handle: u32) {
        if !self.was_armed {
            return;
        }
        let queue = self.queues.of(Of::Cq(handle));
        (queue.armed_over, queue.fired_late) = (0, 0);
    }

    fn cq_armed(&mut self, context: &mut Context, handle: u32) {
        self.was_armed = true;
        let Some(cq) = context.cqs.get(&handle) else { return };
        let queue = self.queues.of(Of::Cq(handle));
        (queue.armed_over, queue.fired_late) = (cq.unpolled, 0);
    }

    fn event_raised(&mut self, context: &mut Context, handle: u32) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let queue = self.queues.of(Of::Cq(handle));
        if queue.armed_over == cq.unpolled {
            // Nothing has come since: it is for what was there.
            queue.fired_late = queue.armed_over;
        }
    }

    /// The program may get an event which the device made at the arming, for completions that were there, and
    /// did not poll since.
    fn event_delivered(&mut self, context: &mut Context, handle: u32) {
        let queue = self.queues.of(Of::Cq(handle));
        let count = std::mem::take(&mut queue.fired_late);
        if count == 0 || std::mem::replace(&mut queue.is_told, true) {
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
        context.found(&LOST_WAKEUP, Found { object, numbers, stack, related });
    }

    fn sleeps(&mut self, context: &mut Context, channel: u64, is_long: bool) {
        let mut stuck = Vec::new();
        let is_waking = context.cqs.values().any(|cq| cq.channel == channel && cq.events_queued > 0);
        for (handle, cq) in context.cqs.iter().filter(|(_, cq)| cq.channel == channel) {
            let queue = self.queues.of(Of::Cq(*handle));
            let is_at_rest = cq.activity == queue.activity_seen;
            queue.looks_at_rest = if is_at_rest { queue.looks_at_rest.saturating_add(1) } else { 0 };
            queue.activity_seen = cq.activity;
            let waits_in_vain = cq.unpolled > 0 && cq.was_armed && cq.armed != Armed::Solicited;
            let is_stuck = waits_in_vain && queue.looks_at_rest >= LOOKS_AT_REST;
            if is_long && !is_waking && is_stuck && !queue.is_told {
                queue.is_told = true;
                stuck.push(*handle);
            }
        }
        for handle in stuck {
            tell_asleep(context, handle);
        }
    }

    fn look_at_waiting(&mut self, context: &Context, waiting: &mut Vec<(u32, i32)>) {
        for (handle, cq) in context.cqs.iter() {
            let Some(descriptor) = context.channels.get(&cq.channel) else { continue };
            let queue = self.queues.of(Of::Cq(*handle));
            let is_at_rest = queue.rest.0 == cq.activity;
            queue.rest = (cq.activity, if is_at_rest { queue.rest.1.saturating_add(1) } else { 0 });
            let waits_in_vain = cq.unpolled > 0 && cq.armed == Armed::Any && cq.events_queued == 0;
            if waits_in_vain && queue.rest.1 >= LOOKS_FROM_ASIDE && !queue.is_told {
                waiting.push((*handle, *descriptor));
            }
        }
    }

    fn sleeps_in_poll(&mut self, context: &mut Context, handle: u32) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        if std::mem::replace(&mut self.queues.of(Of::Cq(handle)).is_told, true) {
            return;
        }
        let (object, count, stack) = (cq.name.clone(), cq.unpolled, cq.armed_at.clone());
        let numbers = format!(
            "{} in {object}; they came before it was armed, here, so only a further completion will wake the \
             thread that sleeps until the channel's descriptor is readable",
            waiting(count)
        );
        let related = vec![related(format!("{object} was made here"), &cq.made)];
        context.found(&LOST_WAKEUP, Found { object, numbers, stack, related });
    }
}

fn tell_asleep(context: &mut Context, handle: u32) {
    let stack = context.here();
    let Some(cq) = context.cqs.get(&handle) else { return };
    let (object, count) = (cq.name.clone(), cq.unpolled);
    let state = match cq.armed {
        Armed::No => "it is not armed, so no completion will wake the thread",
        _ => "they came before it was armed, so only a further completion will wake the thread",
    };
    let related = vec![related(format!("{object} was made here"), &cq.made)];
    let numbers = format!("{} in {object}; {state}", waiting(count));
    context.found(&LOST_WAKEUP, Found { object, numbers, stack, related });
}

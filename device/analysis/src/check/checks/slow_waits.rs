//! The checks for slow ways to wait, to connect and to register memory.

use std::collections::{BTreeMap, HashMap};

use fnv::FnvBuildHasher;
use pumice_platform::call_stack::Stack;
use pumice_transport::types::WorkCompletion;

use super::slow_requests::MANY;
use crate::check::context::{CheckContext, FindingParts, own_thread, related};
use crate::check::kind::{
    EVENT_PER_MESSAGE, QUEUE_PAIR_PER_MESSAGE, REGISTERING_IN_LOOP, SLEEPS_BETWEEN_POLLS,
};
use crate::check::notified::{Check, PerQueue, QueueName};
use crate::check::objects::REGION;

/// Number of short-lived queue pairs from one call site, one after the other, before they are reported.
const OFTEN: u32 = 64;
/// Maximum number of messages of a short-lived queue pair: a request and its reply.
const FEW: u64 = 2;
/// Maximum number of call sites whose queue pairs are counted.
const MAX_CALL_SITES: usize = 1 << 10;

/// The check for a program that makes a queue pair, sends or receives a message, and destroys the queue pair,
/// again and again.
#[derive(Debug, Default)]
pub(super) struct SlowConnections {
    /// Number of send requests posted to each queue pair.
    posted: PerQueue<u64>,
    call_sites: HashMap<Stack, CallSiteCounts, FnvBuildHasher>,
    /// True once a queue pair whose peer is in this process was reported: such ones are reported only once.
    is_reported_here: bool,
}

/// A call site at which queue pairs are made.
#[derive(Debug, Default)]
struct CallSiteCounts {
    /// Number of queue pairs that were made there and are not destroyed.
    alive: u32,
    /// Number of queue pairs that carried few messages, and of whose call site at most one other queue pair
    /// existed when they were destroyed.
    brief: u32,
}

impl Check for SlowConnections {
    fn forget(&mut self, of: Option<QueueName>) {
        self.posted.forget(of);
    }

    fn forked(&mut self, _: &mut CheckContext) {
        self.call_sites.clear();
    }

    fn object_made(&mut self, context: &mut CheckContext, kind: &'static str, _: &'static str, made: &Stack) {
        if !context.checks_performance || kind != "queue pair" {
            return;
        }
        if self.call_sites.len() < MAX_CALL_SITES || self.call_sites.contains_key(made) {
            let call_site = self.call_sites.entry(made.clone()).or_default();
            call_site.alive = call_site.alive.saturating_add(1);
        }
    }

    fn send_posted(&mut self, context: &mut CheckContext, number: u32, _: bool) {
        if context.checks_performance {
            let posted = self.posted.of(QueueName::Qp(number));
            *posted = posted.saturating_add(1);
        }
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number).filter(|_| context.checks_performance) else { return };
        let messages = self.posted.of(QueueName::Qp(number)).saturating_add(qp.counts.received);
        let Some(call_site) = self.call_sites.get_mut(&qp.calls.made) else { return };
        call_site.alive = call_site.alive.saturating_sub(1);
        // Many queue pairs at a time are for many peers.
        let is_brief = (1..=FEW).contains(&messages) && call_site.alive <= 1 && qp.service != "UD";
        call_site.brief = call_site.brief.saturating_add(is_brief.into());
        let is_both = qp.peer_is_here;
        if !is_brief
            || call_site.brief != OFTEN
            || (is_both && std::mem::replace(&mut self.is_reported_here, true))
        {
            return;
        }
        let destroyed = context.here();
        let Some(qp) = context.qps.get(&number) else { return };
        let numbers = format!(
            "{OFTEN} queue pairs were made here one after the other, and carried one or two messages each \
             before they were destroyed"
        );
        let related = vec![related("they were destroyed here", &destroyed)];
        let (object, stack) = (qp.name.clone(), qp.calls.made.clone());
        context.found(&QUEUE_PAIR_PER_MESSAGE, FindingParts { object, numbers, stack, related });
    }
}

/// Longest time, in ns, for [`MANY`] events to be reported. The program would then find the next completion
/// if it polled for a moment.
const WITHIN_NS: u64 = 1_000_000_000;

/// The check for a program that sleeps for each completion. It reports each completion queue once.
#[derive(Debug, Default)]
pub(super) struct SlowEvents {
    queues: PerQueue<ArmedQueue>,
}

#[derive(Debug, Default)]
struct ArmedQueue {
    /// Number of completions that were polled since the last event.
    polled: u32,
    /// Number of events in sequence that brought one completion at most.
    events: u32,
    /// Device time of the first of these events, in ns.
    since_ns: u64,
    is_reported: bool,
}

impl Check for SlowEvents {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn polled(&mut self, context: &mut CheckContext, handle: u32, _: &WorkCompletion) {
        if context.checks_performance && context.cqs.contains_key(&handle) {
            let queue = self.queues.of(QueueName::Cq(handle));
            queue.polled = queue.polled.saturating_add(1);
        }
    }

    fn event_delivered(&mut self, context: &mut CheckContext, handle: u32) {
        if !context.checks_performance || !context.cqs.contains_key(&handle) {
            return;
        }
        let (now_ns, queue) = (context.now_ns, self.queues.of(QueueName::Cq(handle)));
        if std::mem::take(&mut queue.polled) > 1 || queue.events == 0 {
            (queue.events, queue.since_ns) = (0, now_ns);
        }
        queue.events += 1;
        if queue.events < MANY {
            return;
        }
        queue.events = 0;
        let took_ns = now_ns.saturating_sub(queue.since_ns);
        if took_ns > WITHIN_NS || std::mem::replace(&mut queue.is_reported, true) {
            return;
        }
        let stack = context.here();
        let Some(cq) = context.cqs.get(&handle) else { return };
        let object = cq.name.clone();
        let numbers = format!(
            "{MANY} events of {object} brought one completion each, within {} ms: the program slept and was \
             woken for each of them",
            took_ns.div_ceil(1_000_000)
        );
        let related = vec![related(format!("{object} was made here"), &cq.made)];
        context.found(&EVENT_PER_MESSAGE, FindingParts { object, numbers, stack, related });
    }
}

/// Number of polls that found a completion after a sleep before they are reported.
const OFTEN_ASLEEP: u32 = 100;

/// The check for a program that polls an empty queue, sleeps by usleep(3) or the like, and polls again. It
/// reports each completion queue once.
#[derive(Debug, Default)]
pub(super) struct SlowSleeps {
    queues: PerQueue<SleptQueue>,
}

#[derive(Debug, Default)]
struct SleptQueue {
    /// Number of the thread that polled last.
    thread: u64,
    /// Number of sleeps of this thread before that poll.
    sleeps: u64,
    /// Number of completions that this poll returned.
    taken: u32,
    /// True if the thread that polls now found nothing at its previous poll, and has slept since.
    has_slept: bool,
    /// Number of polls that found a completion after a sleep.
    late: u32,
    is_reported: bool,
}

impl Check for SlowSleeps {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn cq_polled(&mut self, context: &mut CheckContext, handle: u32) {
        let Some(sleeps) = context.callbacks.sleeps.filter(|_| context.checks_performance) else { return };
        let (thread, sleeps, queue) = (own_thread(), sleeps(), self.queues.of(QueueName::Cq(handle)));
        queue.has_slept = queue.thread == thread && queue.taken == 0 && queue.sleeps != sleeps;
        (queue.thread, queue.sleeps, queue.taken) = (thread, sleeps, 0);
    }

    fn send_posted(&mut self, context: &mut CheckContext, number: u32, _: bool) {
        let cq = context.qps.get(&number).map(|qp| qp.send_cq);
        self.is_requested(context, cq);
    }

    fn receive_posted(&mut self, context: &mut CheckContext, number: u32) {
        let cq = context.qps.get(&number).map(|qp| qp.recv_cq);
        self.is_requested(context, cq);
    }

    fn polled(&mut self, context: &mut CheckContext, handle: u32, _: &WorkCompletion) {
        if !context.checks_performance || !context.cqs.contains_key(&handle) {
            return;
        }
        let queue = self.queues.of(QueueName::Cq(handle));
        queue.taken = queue.taken.saturating_add(1);
        if !std::mem::take(&mut queue.has_slept) {
            return;
        }
        queue.late = queue.late.saturating_add(1);
        if queue.late < OFTEN_ASLEEP || std::mem::replace(&mut queue.is_reported, true) {
            return;
        }
        let stack = context.here();
        let Some(cq) = context.cqs.get(&handle) else { return };
        let object = cq.name.clone();
        let numbers = format!(
            "{OFTEN} times a thread found {object} empty, slept, and found a completion at its next poll, \
             which had waited until the thread woke"
        );
        let related = vec![related(format!("{object} was made here"), &cq.made)];
        context.found(&SLEEPS_BETWEEN_POLLS, FindingParts { object, numbers, stack, related });
    }
}

impl SlowSleeps {
    /// Handles a request that completes on this queue. The next completion may be that of the request, and so
    /// did not wait while the thread slept.
    fn is_requested(&mut self, context: &CheckContext, cq: Option<u32>) {
        if let Some(handle) = cq.filter(|_| context.checks_performance) {
            let queue = self.queues.of(QueueName::Cq(handle));
            (queue.thread, queue.has_slept) = (0, false);
        }
    }
}

/// Number of registrations at one call site before they are reported.
const MANY_REGISTRATIONS: u32 = 100;
/// Number of call sites whose registrations are counted.
const MAX_REGISTERING_SITES: usize = 1024;

/// The check for programs that register memory in a loop.
#[derive(Debug, Default)]
pub(super) struct SlowRegistrations {
    /// Number of registrations by call site.
    counts: BTreeMap<u64, u32>,
}

impl Check for SlowRegistrations {
    fn object_made(&mut self, context: &mut CheckContext, kind: &'static str, _: &'static str, made: &Stack) {
        let Some(first) = made.addresses().first().filter(|_| kind == REGION && context.checks_performance)
        else {
            return;
        };
        if self.counts.len() >= MAX_REGISTERING_SITES && !self.counts.contains_key(first) {
            return;
        }
        let count = self.counts.entry(*first).or_default();
        *count = count.saturating_add(1);
        if *count == MANY_REGISTRATIONS {
            let numbers = format!("memory was registered {MANY} times here");
            let (object, stack) = (REGION.to_owned(), made.clone());
            context.found(&REGISTERING_IN_LOOP, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}

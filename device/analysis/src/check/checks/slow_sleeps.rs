//! The check for a slow pattern: a thread that sleeps for a while between two polls.

use pumice_transport::types::WorkCompletion;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::holder::own_thread;
use crate::check::kind::SLEEPS_BETWEEN_POLLS;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// Number of polls that found a completion after a sleep before they are reported.
const OFTEN: u32 = 100;

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
        if queue.late < OFTEN || std::mem::replace(&mut queue.is_reported, true) {
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

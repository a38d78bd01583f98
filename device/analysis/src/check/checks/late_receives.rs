//! Receives that are posted when messages have already come for them.

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::RECEIVE_TOO_LATE;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};
use crate::check::queues::Qp;

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

//! Queues that are too small: send queues, shared receive queues, completion queues, and READs under way.

use pumice_model::event::Event;
use pumice_platform::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::types::Cause;

use crate::check::context::{CheckContext, FindingParts, counted, related, waiting};
use crate::check::kind::{
    CQ_TOO_SMALL, READ_DEPTH_MISMATCH, READ_DEPTH_ZERO, SEND_QUEUE_NEVER_REAPED, SRQ_LIMIT_NEVER_ARMED,
};
use crate::check::notified::{Check, PerQueue, QueueName};
use crate::check::queues::Modified;

/// The check for full send queues that no completion will free. It reports each queue pair once.
#[derive(Debug, Default)]
pub(super) struct FullQueues {
    is_reported: PerQueue<bool>,
}

impl Check for FullQueues {
    fn forget(&mut self, of: Option<QueueName>) {
        self.is_reported.forget(of);
    }

    fn send_queue_is_full(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let is_hopeless = qp.counts.signaled == 0 && qp.counts.sends_unpolled == 0 && qp.counts.sends > 0;
        if !is_hopeless || std::mem::replace(self.is_reported.of(QueueName::Qp(number)), true) {
            return;
        }
        let (object, sends, room) = (qp.name.clone(), qp.counts.sends, qp.capacity.max_send_wr);
        let numbers = format!(
            "the send queue of {object} has room for {room} requests; {sends} are in it, and none of them \
             will make a completion"
        );
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        let stack = context.here();
        context.found(&SEND_QUEUE_NEVER_REAPED, FindingParts { object, numbers, stack, related });
    }
}

/// The check for unfit values of `max_rd_atomic`. It reports a peer's value once for each queue pair.
#[derive(Debug, Default)]
pub(super) struct ReadDepth {
    is_reported: PerQueue<bool>,
}

impl Check for ReadDepth {
    fn forget(&mut self, of: Option<QueueName>) {
        self.is_reported.forget(of);
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(Cause::NoReadDepth { opcode, .. }) } = event {
            report_none(context, qp.qpn.value(), opcode.name());
        }
    }

    fn qp_modified(&mut self, context: &mut CheckContext, modified: &Modified<'_>) {
        if modified.facts.is_done {
            self.compare(context, modified.number, modified.stack);
        }
    }
}

/// Reports a READ or atomic that was posted to a queue pair that may have none under way.
fn report_none(context: &mut CheckContext, number: u32, request: &str) {
    let stack = context.here();
    let Some(qp) = context.qps.get(&number) else { return };
    let numbers = format!("{request} is posted to {}, whose max_rd_atomic is 0", qp.name);
    let related = vec![related(format!("{} went to RTS here", qp.name), &qp.calls.to_rts)];
    let object = qp.name.clone();
    context.found(&READ_DEPTH_ZERO, FindingParts { object, numbers, stack, related });
}

impl ReadDepth {
    /// Compares a queue pair with its peer, if that is of this process.
    fn compare(&mut self, context: &mut CheckContext, number: u32, stack: &Stack) {
        let Some(qp) = context.qps.get(&number).filter(|qp| qp.peer_is_here) else { return };
        let Some(other) = qp.destination else { return };
        let is_mutual = context.qps.get(&other).is_some_and(|peer| peer.destination == Some(number));
        if !is_mutual {
            return;
        }
        for (one, other) in [(number, other), (other, number)] {
            let (Some(from), Some(to)) = (context.qps.get(&one), context.qps.get(&other)) else { continue };
            let (Some(most), Some(served)) = (from.max_rd_atomic, to.max_dest_rd_atomic) else { continue };
            if most <= served || std::mem::replace(self.is_reported.of(QueueName::Qp(one)), true) {
                continue;
            }
            let numbers = format!(
                "max_rd_atomic of {} is {most}, and max_dest_rd_atomic of its peer, {}, is {served}",
                from.name, to.name
            );
            let related = vec![
                related(format!("{} went to RTS here", from.name), &from.calls.to_rts),
                related(format!("{} went to RTR here", to.name), &to.calls.to_rtr),
            ];
            let object = from.name.clone();
            context
                .found(&READ_DEPTH_MISMATCH, FindingParts { object, numbers, stack: stack.clone(), related });
        }
    }
}

/// The check for empty shared receive queues whose limit the program never armed. It reports each queue once.
#[derive(Debug, Default)]
pub(super) struct SharedQueues {
    queues: PerQueue<SrqState>,
}

#[derive(Debug, Default)]
struct SrqState {
    /// The program has posted to the queue.
    was_filled: bool,
    /// Number of messages that found the queue empty after that, and whether one did since a receive was last
    /// posted.
    missed: u64,
    is_empty: bool,
    /// The program has armed the limit of the queue.
    was_armed: bool,
    is_reported: bool,
}

impl Check for SharedQueues {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queues.forget(of);
    }

    fn srq_limit_armed(&mut self, context: &mut CheckContext, handle: u32) {
        if context.srqs.contains_key(&handle) {
            self.queues.of(QueueName::Srq(handle)).was_armed = true;
        }
    }

    fn srq_was_empty(&mut self, _: &mut CheckContext, handle: u32) {
        let queue = self.queues.of(QueueName::Srq(handle));
        if queue.was_filled {
            queue.missed = queue.missed.saturating_add(1);
            queue.is_empty = true;
        }
    }

    fn srq_filled(&mut self, context: &mut CheckContext, handle: u32) {
        let queue = self.queues.of(QueueName::Srq(handle));
        queue.was_filled = true;
        if std::mem::replace(&mut queue.is_empty, false) && context.checks_performance {
            let stack = context.here();
            queue.report(context, handle, stack);
        }
    }

    fn srq_destroyed(&mut self, context: &mut CheckContext, handle: u32) {
        let queue = self.queues.of(QueueName::Srq(handle));
        if let Some(srq) = context.srqs.get(&handle).filter(|_| queue.is_empty) {
            let made = srq.made.clone();
            queue.report(context, handle, made);
        }
    }
}

impl SrqState {
    fn report(&mut self, context: &mut CheckContext, handle: u32, stack: Stack) {
        if self.was_armed || std::mem::replace(&mut self.is_reported, true) {
            return;
        }
        let Some(srq) = context.srqs.get(&handle) else { return };
        let object = srq.name.clone();
        let numbers = format!(
            "{object} was empty when {} came, and its limit was never armed",
            counted(self.missed, "message")
        );
        let related = vec![related(format!("{object} was made here"), &srq.made)];
        context.found(&SRQ_LIMIT_NEVER_ARMED, FindingParts { object, numbers, stack, related });
    }
}

/// The check for completion queues on which more will complete than they have room for. It reports each queue
/// once.
#[derive(Debug, Default)]
pub(super) struct SmallQueues {
    is_reported: PerQueue<bool>,
}

impl Check for SmallQueues {
    fn forget(&mut self, of: Option<QueueName>) {
        self.is_reported.forget(of);
    }

    fn send_posted(&mut self, context: &mut CheckContext, qp: u32, is_signaled: bool) {
        if let Some(qp) = context.qps.get(&qp).filter(|_| is_signaled) {
            let cq = qp.send_cq;
            self.look(context, cq);
        }
    }

    fn receive_posted(&mut self, context: &mut CheckContext, qp: u32) {
        if let Some(qp) = context.qps.get(&qp) {
            let cq = qp.recv_cq;
            self.look(context, cq);
        }
    }
}

impl SmallQueues {
    /// Handles a posted request that will complete on this queue.
    fn look(&mut self, context: &mut CheckContext, handle: u32) {
        let Some(cq) = context.cqs.get(&handle) else { return };
        let most = cq.expected.saturating_add(cq.unpolled);
        if most <= u64::from(cq.depth) || std::mem::replace(self.is_reported.of(QueueName::Cq(handle)), true)
        {
            return;
        }
        let name = cq.name.clone();
        let numbers = format!(
            "{name} has room for {}; {} will complete on it, and {} in it",
            counted(cq.depth.into(), "completion"),
            counted(cq.expected, "posted request"),
            waiting(cq.unpolled)
        );
        let related = vec![related(format!("{name} was made here"), &cq.made)];
        let stack = context.here();
        context.found(&CQ_TOO_SMALL, FindingParts { object: name, numbers, stack, related });
    }
}

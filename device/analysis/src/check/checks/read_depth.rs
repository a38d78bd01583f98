//! Queue pairs that may have fewer READs and atomics under way than are posted or come.

use pumice_model::event::Event;
use pumice_platform::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::types::Cause;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::facts::Modified;
use crate::check::kind::{READ_DEPTH_MISMATCH, READ_DEPTH_ZERO};
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

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

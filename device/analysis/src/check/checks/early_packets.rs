//! Packets that come before a queue pair receives.

use pumice_model::event::Event;
use pumice_platform::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{Cause, DropReason, QpState};

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::facts::Modified;
use crate::check::kind::CONNECTED_TOO_LATE;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};
use crate::check::queues::Qp;

/// The check for peers that send before the queue pair is in RTR.
#[derive(Debug, Default)]
pub(super) struct EarlyPackets {
    counts: PerQueue<u64>,
}

impl Check for EarlyPackets {
    fn forget(&mut self, of: Option<QueueName>) {
        self.counts.forget(of);
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(Cause::PacketDropped { reason, .. }) } = event
            && matches!(reason, DropReason::NotReceiving { .. })
            && context.qps.contains_key(&qp.qpn.value())
        {
            let count = self.counts.of(QueueName::Qp(qp.qpn.value()));
            *count = count.saturating_add(1);
        }
    }

    fn qp_modified(&mut self, context: &mut CheckContext, modified: &Modified<'_>) {
        if !modified.facts.is_done || modified.to != Some(QpState::Rtr) {
            return;
        }
        let Some(qp) = context.qps.get(&modified.number) else { return };
        let stack = modified.stack.clone();
        let found = self.look_at(modified.number, qp, stack);
        found.into_iter().for_each(|one| context.found(&CONNECTED_TOO_LATE, one));
    }

    /// Checks a queue pair that got datagrams and never received them. The sender of a connection notices
    /// itself that the connection is given up.
    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number).filter(|qp| qp.service == "UD") else { return };
        let found = self.look_at(number, qp, qp.calls.to_init.clone());
        found.into_iter().for_each(|one| context.found(&CONNECTED_TOO_LATE, one));
    }

    fn is_ended_by_signal(&mut self, context: &mut CheckContext) {
        let all: Vec<u32> = context.qps.iter().map(|(number, _)| *number).collect();
        all.into_iter().for_each(|number| self.qp_destroyed(context, number));
    }
}

impl EarlyPackets {
    /// Returns a finding if packets have come too early, once for each queue pair.
    fn look_at(&mut self, number: u32, qp: &Qp, stack: Stack) -> Option<FindingParts> {
        let count = std::mem::take(self.counts.of(QueueName::Qp(number)));
        let object = qp.name.clone();
        let numbers = format!("{} came to {object} before it was in RTR", counted(count, "packet"));
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        (count > 0).then_some(FindingParts { object, numbers, stack, related })
    }
}

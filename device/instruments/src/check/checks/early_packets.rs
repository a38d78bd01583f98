//! Packets that come before a queue pair receives.

use pumice_events::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{Cause, DropReason, QpState};

use crate::check::context::{Context, Found, counted, related};
use crate::check::facts::Modified;
use crate::check::kept::{Kept, Of};
use crate::check::kind::CONNECTED_TOO_LATE;
use crate::check::told::Check;

/// The peer sends before the queue pair is in RTR.
#[derive(Debug, Default)]
pub(super) struct EarlyPackets {
    counts: Kept<u64>,
}

impl Check for EarlyPackets {
    fn forget(&mut self, of: Option<Of>) {
        self.counts.forget(of);
    }

    fn hears(&mut self, context: &mut Context, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(Cause::PacketDropped { reason, .. }) } = event
            && matches!(reason, DropReason::NotReceiving { .. })
            && context.qps.contains_key(&qp.qpn.value())
        {
            let count = self.counts.of(Of::Qp(qp.qpn.value()));
            *count = count.saturating_add(1);
        }
    }

    fn qp_modified(&mut self, context: &mut Context, modified: &Modified<'_>) {
        if !modified.facts.is_done || modified.to != Some(QpState::Rtr) {
            return;
        }
        let Some(qp) = context.qps.get(&modified.number) else { return };
        let count = std::mem::take(self.counts.of(Of::Qp(modified.number)));
        if count > 0 {
            let (object, stack) = (qp.name.clone(), modified.stack.clone());
            let numbers = format!("{} came to {object} before it was in RTR", counted(count, "packet"));
            let related = vec![related(format!("{object} was made here"), &qp.made)];
            context.found(&CONNECTED_TOO_LATE, Found { object, numbers, stack, related });
        }
    }
}

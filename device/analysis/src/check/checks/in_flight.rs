//! Requests under way at the end of their queue pair.

use pumice_transport::types::{Cause, QpState};

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::IN_FLIGHT_AT_DESTROY;
use crate::check::notified::{Check, Hint};

/// The check for queue pairs that the program destroys or resets while their requests are not complete.
#[derive(Debug, Default)]
pub(super) struct InFlight;

impl Check for InFlight {
    fn logged(&mut self, context: &mut CheckContext, number: u32, cause: &Cause, _: Option<&Hint>) {
        let Cause::DroppedByReset { .. } = cause else { return };
        let Some(qp) = context.qps.get(&number) else { return };
        let (object, numbers) = (qp.name.clone(), format!("{} {cause}", qp.name));
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        let stack = context.here();
        context.found(&IN_FLIGHT_AT_DESTROY, FindingParts { object, numbers, stack, related });
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        if qp.counts.signaled == 0 || qp.state != QpState::Rts || qp.service != "RC" {
            return;
        }
        let (object, count) = (qp.name.clone(), counted(qp.counts.signaled, "signaled send request"));
        let numbers = format!("not completed of {object}: {count}");
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        let stack = context.here();
        context.found(&IN_FLIGHT_AT_DESTROY, FindingParts { object, numbers, stack, related });
    }
}

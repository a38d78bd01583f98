//! Requests under way at the end of their queue pair.

use pumice_transport::types::QpState;

use crate::check::context::{Context, Found, counted, related};
use crate::check::kind::IN_FLIGHT_AT_DESTROY;
use crate::check::told::Check;

/// The program destroys a queue pair whose requests are not complete.
#[derive(Debug, Default)]
pub(super) struct InFlight;

impl Check for InFlight {
    fn qp_destroyed(&mut self, context: &mut Context, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        if qp.signaled == 0 || qp.state != QpState::Rts || qp.service != "RC" {
            return;
        }
        let (object, count) = (qp.name.clone(), counted(qp.signaled, "signaled send request"));
        let numbers = format!("not completed of {object}: {count}");
        let related = vec![related(format!("{object} was made here"), &qp.made)];
        let stack = context.here();
        context.found(&IN_FLIGHT_AT_DESTROY, Found { object, numbers, stack, related });
    }
}

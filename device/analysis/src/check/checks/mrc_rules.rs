//! Rules of MRC that the program or its peer breaks.

use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::types::MrcBreach;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{
    FindingKind, MRC_LIMITS_DIFFER, MRC_OPERATION_UNKNOWN, MRC_PROFILE_UNKNOWN, MRC_WITHOUT_RECEIVE,
};
use crate::check::notified::Check;

/// The check for the rules that MRC has beside those of RC. The protocol tells of each breach once.
#[derive(Debug, Default)]
pub(super) struct MrcRules;

impl Check for MrcRules {
    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        let Event::Qp { qp, event: QpEvent::RuleBroken(breach) } = event else { return };
        // The program makes these two itself, by the call that it is in now.
        let is_of_call = matches!(breach, MrcBreach::Operation { .. } | MrcBreach::NoProfile { .. });
        let here = is_of_call.then(|| context.here());
        let Some(qp) = context.qps.get(&qp.qpn.value()) else { return };
        let is_of_sender =
            matches!(breach, MrcBreach::WindowRefused { .. } | MrcBreach::DynamicWindow { .. });
        let stack =
            here.unwrap_or_else(|| if is_of_sender { &qp.calls.to_rts } else { &qp.calls.to_rtr }.clone());
        let object = qp.name.clone();
        let numbers = format!("{object} {breach}");
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        context.found(kind_of(breach), FindingParts { object, numbers, stack, related });
    }
}

fn kind_of(breach: &MrcBreach) -> &'static FindingKind {
    match breach {
        MrcBreach::Operation { .. } => &MRC_OPERATION_UNKNOWN,
        MrcBreach::NoReceive => &MRC_WITHOUT_RECEIVE,
        MrcBreach::NoProfile { .. } => &MRC_PROFILE_UNKNOWN,
        MrcBreach::Immediates { .. }
        | MrcBreach::BeyondWindow { .. }
        | MrcBreach::WindowRefused { .. }
        | MrcBreach::DynamicWindow { .. } => &MRC_LIMITS_DIFFER,
    }
}

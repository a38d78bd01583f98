//! Packets that are dropped because both sides do not fit.

use pumice_events::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Counter;
use pumice_transport::types::{Cause, DropReason};

use crate::check::context::{Context, Found, related};
use crate::check::kept::{Kept, Of};
use crate::check::kind::{CONNECTED_TO_ITSELF, FindingKind, PKEY_MISMATCH, QKEY_MISMATCH};
use crate::check::told::Check;

/// Packets come with another Q_Key or P_Key, or from the queue pair itself. Each is told once of each
/// queue pair.
#[derive(Debug, Default)]
pub(super) struct Mismatches {
    of_qkey: Kept<bool>,
    of_pkey: Kept<bool>,
    of_number: Kept<bool>,
}

impl Check for Mismatches {
    fn forget(&mut self, of: Option<Of>) {
        self.of_qkey.forget(of);
        self.of_pkey.forget(of);
        self.of_number.forget(of);
    }

    fn hears(&mut self, context: &mut Context, event: &Event<'_>) {
        let Event::Qp { qp, event } = event else { return };
        let number = qp.qpn.value();
        match event {
            QpEvent::Dropped { reason: Counter::RxBadQkey, .. } => {
                tell(context, number, &mut self.of_qkey, &QKEY_MISMATCH, |name| {
                    format!("a datagram with another Q_Key came to {name}")
                });
            }
            QpEvent::Logged(Cause::PacketDropped {
                reason: DropReason::OtherPartition { given, own },
                ..
            }) => tell(context, number, &mut self.of_pkey, &PKEY_MISMATCH, |name| {
                format!("a packet with P_Key {given:#06x} came to {name}, whose P_Key is {own:#06x}")
            }),
            QpEvent::Logged(Cause::PacketDropped { reason: DropReason::FromItself, .. }) => {
                tell(context, number, &mut self.of_number, &CONNECTED_TO_ITSELF, |name| {
                    format!("{name} drops what it has sent itself: dest_qp_num is its own number")
                });
            }
            _ => {}
        }
    }
}

fn tell(
    context: &mut Context,
    number: u32,
    is_told: &mut Kept<bool>,
    kind: &'static FindingKind,
    numbers: impl FnOnce(&str) -> String,
) {
    let Some(qp) = context.qps.get(&number) else { return };
    if !std::mem::replace(is_told.of(Of::Qp(number)), true) {
        let is_given_late = kind == &CONNECTED_TO_ITSELF;
        let place = if is_given_late { &qp.to_rtr } else { &qp.to_init };
        let (object, stack) = (qp.name.clone(), place.clone());
        let numbers = numbers(&object);
        let related = vec![related(format!("{object} was made here"), &qp.made)];
        context.found(kind, Found { object, numbers, stack, related });
    }
}

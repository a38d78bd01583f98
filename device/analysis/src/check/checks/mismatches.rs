//! Packets that are dropped because both sides do not fit.

use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Counter;
use pumice_transport::types::{Cause, DropReason};

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{CONNECTED_TO_ITSELF, FindingKind, PKEY_MISMATCH, QKEY_MISMATCH};
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// The check for packets with another Q_Key or P_Key, or from the queue pair itself. It reports each kind
/// once for each queue pair.
#[derive(Debug, Default)]
pub(super) struct Mismatches {
    of_qkey: PerQueue<bool>,
    of_pkey: PerQueue<bool>,
    of_number: PerQueue<bool>,
}

impl Check for Mismatches {
    fn forget(&mut self, of: Option<QueueName>) {
        self.of_qkey.forget(of);
        self.of_pkey.forget(of);
        self.of_number.forget(of);
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        let Event::Qp { qp, event } = event else { return };
        let number = qp.qpn.value();
        match event {
            QpEvent::Dropped { reason: Counter::RxBadQkey, .. } => {
                report(context, number, &mut self.of_qkey, &QKEY_MISMATCH, |name| {
                    format!("a datagram with another Q_Key came to {name}")
                });
            }
            QpEvent::Logged(Cause::PacketDropped {
                reason: DropReason::OtherPartition { given, own },
                ..
            }) => report(context, number, &mut self.of_pkey, &PKEY_MISMATCH, |name| {
                format!("a packet with P_Key {given:#06x} came to {name}, whose P_Key is {own:#06x}")
            }),
            QpEvent::Logged(Cause::PacketDropped { reason: DropReason::FromItself, .. }) => {
                report(context, number, &mut self.of_number, &CONNECTED_TO_ITSELF, |name| {
                    format!("{name} drops what it has sent itself: dest_qp_num is its own number")
                });
            }
            _ => {}
        }
    }
}

fn report(
    context: &mut CheckContext,
    number: u32,
    is_reported: &mut PerQueue<bool>,
    kind: &'static FindingKind,
    numbers: impl FnOnce(&str) -> String,
) {
    let Some(qp) = context.qps.get(&number) else { return };
    if !std::mem::replace(is_reported.of(QueueName::Qp(number)), true) {
        let is_given_late = kind == &CONNECTED_TO_ITSELF;
        let call_site = if is_given_late { &qp.calls.to_rtr } else { &qp.calls.to_init };
        let (object, stack) = (qp.name.clone(), call_site.clone());
        let numbers = numbers(&object);
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        context.found(kind, FindingParts { object, numbers, stack, related });
    }
}

//! Attributes and fields that do not mean what they seem to mean, and rules that both sides must keep.

use std::cmp::Ordering;

use pumice_calls::Call;
use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Counter;
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::{Cause, DropReason, MrcBreach, WcStatus};
use pumice_transport::wire::Psn;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{
    CONNECTED_TO_ITSELF, FindingKind, GID_OF_OTHER_FAMILY, MRC_LIMITS_DIFFER, MRC_OPERATION_UNKNOWN,
    MRC_PROFILE_UNKNOWN, MRC_WITHOUT_RECEIVE, MTU_ABOVE_ACTIVE, MTU_BELOW_PATH, NUMBER_TOO_LONG,
    PKEY_MISMATCH, QKEY_MISMATCH, RETRIES_ZERO, RNR_TIMER_LONGEST, TIMEOUT_FOR_EVER, WC_FIELD_OF_ERROR,
};
use crate::check::notified::{Check, PerQueue, QueueName};
use crate::check::queues::Modified;

/// The check for reads of a failed completion's field that has no meaning then.
#[derive(Debug, Default)]
pub(super) struct FieldsOfErrors;

impl Check for FieldsOfErrors {
    fn field_of_error_read(
        &mut self,
        context: &mut CheckContext,
        address: u64,
        field: &str,
        status: WcStatus,
    ) {
        let stack = context.here();
        let Some(object) = context.objects.at(address).map(|object| object.name()) else { return };
        let numbers = format!("the program reads {field} of a completion with status {}", status.name());
        context.found(&WC_FIELD_OF_ERROR, FindingParts { object, numbers, stack, related: Vec::new() });
    }
}

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

/// Largest number that may be the code of an MTU.
const MAX_MTU_CODE: u32 = 9;

/// The check for attributes that do not do what the program wants.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// The program has queried attributes that the connection manager chooses.
    are_requested: bool,
}

impl Check for Attributes {
    fn enters(&mut self, _: &mut CheckContext, call: Call, _: u64) {
        // The connection manager may have chosen min_rnr_timer.
        self.are_requested |= call == Call::rdma_init_qp_attr;
    }

    fn qp_modified(&mut self, context: &mut CheckContext, modified: &Modified<'_>) {
        let Some(object) = context.qps.get(&modified.number).map(|qp| qp.name.clone()) else { return };
        let looks = [
            retries(modified),
            self.receiver_timer(modified),
            mtu(modified),
            family_of_gid(modified),
            long_number(modified),
        ];
        for (kind, numbers) in looks.into_iter().flatten() {
            let (object, stack) = (object.clone(), modified.stack.clone());
            context.found(kind, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}

type MaybeFinding = Option<(&'static FindingKind, String)>;

impl Attributes {
    fn receiver_timer(&self, modified: &Modified<'_>) -> MaybeFinding {
        let is_zero = modified.gives(AttributeMask::MIN_RNR_TIMER) && modified.attributes.min_rnr_timer == 0;
        let is_it = modified.facts.is_done && is_zero && !self.are_requested;
        is_it.then(|| (&RNR_TIMER_LONGEST, "min_rnr_timer is 0, which is 655.36 ms".to_owned()))
    }
}

fn retries(modified: &Modified<'_>) -> MaybeFinding {
    let Modified { attributes, facts, .. } = *modified;
    if facts.is_done && modified.gives(AttributeMask::TIMEOUT) && attributes.timeout == 0 {
        let retries = attributes.retry_cnt;
        Some((&TIMEOUT_FOR_EVER, format!("timeout is 0; retry_cnt {retries} is never used")))
    } else if facts.is_done && modified.gives(AttributeMask::RETRY_CNT) && attributes.retry_cnt == 0 {
        Some((&RETRIES_ZERO, format!("retry_cnt is 0, timeout {}", attributes.timeout)))
    } else {
        None
    }
}

fn mtu(modified: &Modified<'_>) -> MaybeFinding {
    let Modified { attributes, facts, .. } = *modified;
    if !modified.gives(AttributeMask::PATH_MTU) || !(1..=MAX_MTU_CODE).contains(&attributes.path_mtu) {
        return None;
    }
    let (wanted, active) = (128_u32 << attributes.path_mtu, facts.active_mtu.bytes());
    let numbers = format!("path_mtu is {wanted} bytes, and the port's active MTU {active}");
    match wanted.cmp(&(active as u32)) {
        Ordering::Greater => Some((&MTU_ABOVE_ACTIVE, numbers)),
        Ordering::Less => Some((&MTU_BELOW_PATH, numbers)),
        Ordering::Equal => None,
    }
}

fn long_number(modified: &Modified<'_>) -> MaybeFinding {
    let attributes = modified.attributes;
    let given = [
        ("sq_psn", AttributeMask::SQ_PSN, attributes.sq_psn),
        ("rq_psn", AttributeMask::RQ_PSN, attributes.rq_psn),
        ("dest_qp_num", AttributeMask::DEST_QPN, attributes.dest_qp_num),
    ];
    let taken = |number: u32| Psn::new(number).value();
    let is_it = |bit, number| modified.gives(bit) && taken(number) != number;
    let (name, _, number) = given.into_iter().find(|(_, bit, number)| is_it(*bit, *number))?;
    let swapped = number.swap_bytes();
    let hint = match taken(swapped) == swapped && name == "dest_qp_num" {
        true => format!("; with its bytes in the other order it is {swapped:#x}"),
        false => String::new(),
    };
    let taken = taken(number);
    let numbers = format!("{name} is {number:#x}, which has more than 24 bits; {taken:#x} is taken{hint}");
    Some((&NUMBER_TOO_LONG, numbers))
}

fn family_of_gid(modified: &Modified<'_>) -> MaybeFinding {
    let vector = &modified.attributes.address_vector;
    let is_ipv4 = vector.dgid.is_ipv4();
    let is_other = modified.facts.source_is_ipv4.is_some_and(|source| source != is_ipv4);
    // A GID of zeros is invalid, and no other index would help: the call is refused with a message.
    if !modified.gives(AttributeMask::AV) || !is_other || vector.dgid.is_zero() {
        return None;
    }
    let family = |is_ipv4| if is_ipv4 { "IPv4" } else { "IPv6" };
    let (own, peer) = (family(!is_ipv4), family(is_ipv4));
    let index = vector.sgid_index;
    let numbers = format!("the GID at sgid_index {index} is an {own} address, the peer's an {peer} one");
    Some((&GID_OF_OTHER_FAMILY, numbers))
}

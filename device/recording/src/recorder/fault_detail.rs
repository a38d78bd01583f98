//! Effects of rules of fault plans, as records, and names that records have for the variants of enums
//! elsewhere.

use pumice_model::event::Event;
use pumice_model::fates::completion::WorkSide;
use pumice_model::fates::fired::{CallFired, CompletionEventFired, CompletionFired, Fired};
use pumice_model::fates::incident::Incident;
use pumice_model::fates::{PacketClass, PacketService};
use pumice_transport::cm::{CmEvent, CmState};
use pumice_transport::event::{PacketSide, RetransmitReason, StateChangeActor};
use pumice_transport::mad::CmMessage;
use pumice_transport::wire::{Syndrome, rnr_timer_ns};

use crate::format::{Record, TracedFaultAction};

/// Returns the name of a message of connection management.
pub(super) const fn cm_message(message: &CmMessage) -> &'static str {
    match message {
        CmMessage::Req(_) => "REQ",
        CmMessage::Mra(_) => "MRA",
        CmMessage::Rej(_) => "REJ",
        CmMessage::Rep(_) => "REP",
        CmMessage::Rtu(_) => "RTU",
        CmMessage::Dreq(_) => "DREQ",
        CmMessage::Drep(_) => "DREP",
        CmMessage::SidrReq(_) => "SIDR_REQ",
        CmMessage::SidrRep(_) => "SIDR_REP",
    }
}

/// Returns the name of an event of a connection.
pub(super) const fn cm_event(event: &CmEvent) -> &'static str {
    match event {
        CmEvent::ConnectRequest { .. } => "connect request",
        CmEvent::ConnectResponse { .. } => "connect response",
        CmEvent::Established { .. } => "established",
        CmEvent::Rejected { .. } => "rejected",
        CmEvent::Unreachable { .. } => "unreachable",
        CmEvent::MraReceived { .. } => "more time asked for",
        CmEvent::DisconnectRequest { .. } => "disconnect request",
        CmEvent::Disconnected { .. } => "disconnected",
        CmEvent::TimewaitExit { .. } => "timewait over",
        CmEvent::SidrRequest { .. } => "SIDR request",
        CmEvent::SidrResolved { .. } => "SIDR resolved",
    }
}

/// Returns the name of the state of a connection.
pub(super) const fn cm_state(state: Option<CmState>) -> &'static str {
    match state {
        None => "",
        Some(CmState::Idle) => "idle",
        Some(CmState::ReqSent) => "REQ sent",
        Some(CmState::MraReqReceived) => "MRA for REQ received",
        Some(CmState::ReqReceived) => "REQ received",
        Some(CmState::MraReqSent) => "MRA for REQ sent",
        Some(CmState::RepSent) => "REP sent",
        Some(CmState::MraRepReceived) => "MRA for REP received",
        Some(CmState::RepReceived) => "REP received",
        Some(CmState::MraRepSent) => "MRA for REP sent",
        Some(CmState::Established) => "established",
        Some(CmState::DreqSent) => "DREQ sent",
        Some(CmState::DreqReceived) => "DREQ received",
        Some(_) => "other",
    }
}

/// Returns the number of the side that sends a packet.
pub(super) const fn side(side: PacketSide) -> u8 {
    match side {
        PacketSide::Requester => 0,
        PacketSide::Responder => 1,
        PacketSide::Notification => 2,
    }
}

/// Returns the number of the actor that changed a state.
pub(super) const fn actor(actor: StateChangeActor) -> u8 {
    match actor {
        StateChangeActor::Program => 0,
        StateChangeActor::Requester => 1,
        StateChangeActor::Responder => 2,
        StateChangeActor::Device => 3,
    }
}

/// Returns the number of the reason why packets are sent again.
pub(super) const fn repetition(why: RetransmitReason) -> u8 {
    match why {
        RetransmitReason::Timeout => 0,
        RetransmitReason::Silence => 1,
        RetransmitReason::SequenceNak => 2,
        RetransmitReason::MissingAnswer => 3,
        RetransmitReason::ReceiverNotReady => 4,
    }
}

/// Fields that are the same in all records of one fault.
#[derive(Debug, Clone, Copy, Default)]
struct FaultFields<'a> {
    rule: &'a str,
    qp: Option<u32>,
    side: u8,
    message: u64,
    ordinal: u64,
}

impl<'a> FaultFields<'a> {
    const fn record(
        self,
        what: TracedFaultAction,
        subject: &'a str,
        delay_ns: u64,
        lasts_ns: u64,
    ) -> Record<'a> {
        let FaultFields { rule, qp, side, message, ordinal } = self;
        let what = what as u8;
        Record::FaultDetail { rule, what, qp, side, message, subject, ordinal, delay_ns, lasts_ns }
    }
}

/// Passes the records of a fault's event to `put`, one for each effect of the rule.
pub(super) fn of_event(event: &Event<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    match event {
        Event::FaultApplied { fault, .. } => of_packet(fault, put),
        Event::CallFaultApplied { fault } => of_call(fault, put),
        Event::CompletionFaultApplied { fault, .. } => of_completion(fault, put),
        Event::CompletionEventFaultApplied { fault } => of_completion_event(fault, put),
        _ => {}
    }
}

fn of_packet(fault: &Fired<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    let Fired { rule, key, fate, .. } = fault;
    let is_cm = key.service == PacketService::Cm;
    let (qp, side, message) = ((!is_cm).then_some(key.qp), side(key.side), key.message);
    let detail = FaultFields { rule, qp, side, message, ordinal: 0 };
    if let Some(partition_ns) = fault.partition_ns {
        return put(&detail.record(TracedFaultAction::Partition, "", 0, partition_ns.unwrap_or(0)));
    }
    if let Some(incident) = fault.incident {
        return of_incident(detail, incident, put);
    }
    if let Some(syndrome) = fate.refused {
        let (name, delay_ns) = match syndrome {
            Syndrome::RnrNak { timer_code } => ("rnr".to_owned(), rnr_timer_ns(timer_code)),
            Syndrome::Nak(code) => (format!("{code:?}"), 0),
            other => (format!("{other:?}"), 0),
        };
        return put(&detail.record(TracedFaultAction::Refused, &name, delay_ns, 0));
    }
    if fate.rejected.is_some() || fate.unanswered {
        return put(&detail.record(TracedFaultAction::Rejected, "", 0, 0));
    }
    // Fault plans know the packets of MRC without data as notifications.
    let is_notification = key.side == PacketSide::Notification && key.class != PacketClass::Cnp;
    let subject = if is_notification { key.class.name() } else { "" };
    let flips = fate.flips.map(|flips| {
        if flips.sealed { TracedFaultAction::CorruptedSilently } else { TracedFaultAction::Corrupted }
    });
    let reported = [
        (fate.lost, TracedFaultAction::Lost),
        (fate.delay_ns > 0, TracedFaultAction::Delayed),
        (fate.behind_packets > 0, TracedFaultAction::Reordered),
        (fate.copies > 0, TracedFaultAction::Duplicated),
        (fate.kept_bytes.is_some() && fate.dscp.is_none(), TracedFaultAction::Truncated),
        (fate.dscp.is_some(), TracedFaultAction::Trimmed),
        (fate.path_mark.is_some(), TracedFaultAction::Reflected),
        (fate.marked, TracedFaultAction::Marked),
        (fate.notified, TracedFaultAction::Notified),
    ];
    for what in reported.into_iter().filter(|(happens, _)| *happens).map(|(_, what)| what).chain(flips) {
        let delay_ns = match what {
            TracedFaultAction::Delayed => fate.delay_ns,
            TracedFaultAction::Reordered => fate.behind_ns,
            _ => 0,
        };
        put(&detail.record(what, subject, delay_ns, 0));
    }
}

fn of_incident(detail: FaultFields<'_>, incident: Incident, put: &mut dyn FnMut(&Record<'_>)) {
    let text = incident.to_string();
    put(&detail.record(TracedFaultAction::Incident, &text, 0, incident.lasts_ns().unwrap_or(0)));
}

fn of_call(fault: &CallFired<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    let CallFired { rule, key, fate, .. } = fault;
    let detail = FaultFields { rule, qp: key.qp, ordinal: key.ordinal, ..FaultFields::default() };
    if fate.errno.is_some() {
        put(&detail.record(TracedFaultAction::CallFailed, key.call, 0, 0));
    }
    if fate.delay_ns > 0 {
        put(&detail.record(TracedFaultAction::CallSlowed, key.call, fate.delay_ns, 0));
    }
    if let Some(incident) = fate.incident {
        of_incident(detail, incident, put);
    }
}

fn of_completion(fault: &CompletionFired<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    let CompletionFired { rule, key, fate, .. } = fault;
    let side = u8::from(key.class.side() == WorkSide::Receive);
    let detail = FaultFields { rule, qp: Some(key.qp), side, message: key.message, ordinal: 0 };
    if let Some(status) = fate.status {
        put(&detail.record(TracedFaultAction::Status, status.name(), 0, 0));
    }
    if fate.delay_ns > 0 || fate.until.is_some() {
        put(&detail.record(TracedFaultAction::CompletionLate, "", fate.delay_ns, 0));
    }
}

fn of_completion_event(fault: &CompletionEventFired<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    let CompletionEventFired { rule, key, fate, .. } = fault;
    let detail = FaultFields { rule, ordinal: key.nth, ..FaultFields::default() };
    if fate.delay_ns > 0 {
        put(&detail.record(TracedFaultAction::EventLate, "", fate.delay_ns, 0));
    }
    if fate.more > 0 {
        put(&detail.record(TracedFaultAction::EventsMerged, "", fate.within_ns, 0));
    }
}

//! What rules of fault plans did, as records that need no reading of sentences.

use pumice_events::Event;
use pumice_faults::calls::CallFired;
use pumice_faults::completion_events::CompletionEventFired;
use pumice_faults::completions::{CompletionFired, WorkSide};
use pumice_faults::{Fired, Incident, PacketService};
use pumice_traces::format::{FaultWhat, Record};
use pumice_transport::wire::{Syndrome, rnr_timer_ns};

use super::naming;

/// What is the same in all records of one fault.
#[derive(Debug, Clone, Copy, Default)]
struct Detail<'a> {
    rule: &'a str,
    qp: Option<u32>,
    side: u8,
    message: u64,
    ordinal: u64,
}

impl<'a> Detail<'a> {
    const fn record(self, what: FaultWhat, subject: &'a str, delay_ns: u64, lasts_ns: u64) -> Record<'a> {
        let Detail { rule, qp, side, message, ordinal } = self;
        let what = what as u8;
        Record::FaultDetail { rule, what, qp, side, message, subject, ordinal, delay_ns, lasts_ns }
    }
}

/// Gives away what an event says of a fault, a record for each thing that the rule did.
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
    let (qp, side, message) = ((!is_cm).then_some(key.qp), naming::side(key.side), key.message);
    let detail = Detail { rule, qp, side, message, ordinal: 0 };
    if let Some(partition_ns) = fault.partition_ns {
        return put(&detail.record(FaultWhat::Partition, "", 0, partition_ns.unwrap_or(0)));
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
        return put(&detail.record(FaultWhat::Refused, &name, delay_ns, 0));
    }
    if fate.rejected.is_some() || fate.unanswered {
        return put(&detail.record(FaultWhat::Rejected, "", 0, 0));
    }
    let flips = fate
        .flips
        .map(|flips| if flips.sealed { FaultWhat::CorruptedSilently } else { FaultWhat::Corrupted });
    let said = [
        (fate.lost, FaultWhat::Lost),
        (fate.delay_ns > 0, FaultWhat::Delayed),
        (fate.behind_packets > 0, FaultWhat::Reordered),
        (fate.copies > 0, FaultWhat::Duplicated),
        (fate.kept_bytes.is_some(), FaultWhat::Truncated),
        (fate.marked, FaultWhat::Marked),
        (fate.notified, FaultWhat::Notified),
    ];
    for what in said.into_iter().filter(|(happens, _)| *happens).map(|(_, what)| what).chain(flips) {
        let delay_ns = match what {
            FaultWhat::Delayed => fate.delay_ns,
            FaultWhat::Reordered => fate.behind_ns,
            _ => 0,
        };
        put(&detail.record(what, "", delay_ns, 0));
    }
}

fn of_incident(detail: Detail<'_>, incident: Incident, put: &mut dyn FnMut(&Record<'_>)) {
    let text = incident.to_string();
    put(&detail.record(FaultWhat::Incident, &text, 0, incident.lasts_ns().unwrap_or(0)));
}

fn of_call(fault: &CallFired<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    let CallFired { rule, key, fate, .. } = fault;
    let detail = Detail { rule, qp: key.qp, ordinal: key.ordinal, ..Detail::default() };
    if fate.errno.is_some() {
        put(&detail.record(FaultWhat::CallFailed, key.call, 0, 0));
    }
    if fate.delay_ns > 0 {
        put(&detail.record(FaultWhat::CallSlowed, key.call, fate.delay_ns, 0));
    }
    if let Some(incident) = fate.incident {
        of_incident(detail, incident, put);
    }
}

fn of_completion(fault: &CompletionFired<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    let CompletionFired { rule, key, fate, .. } = fault;
    let side = u8::from(key.class.side() == WorkSide::Receive);
    let detail = Detail { rule, qp: Some(key.qp), side, message: key.message, ordinal: 0 };
    if let Some(status) = fate.status {
        put(&detail.record(FaultWhat::Status, status.name(), 0, 0));
    }
    if fate.delay_ns > 0 || fate.until.is_some() {
        put(&detail.record(FaultWhat::CompletionLate, "", fate.delay_ns, 0));
    }
}

fn of_completion_event(fault: &CompletionEventFired<'_>, put: &mut dyn FnMut(&Record<'_>)) {
    let CompletionEventFired { rule, key, fate, .. } = fault;
    let detail = Detail { rule, ordinal: key.nth, ..Detail::default() };
    if fate.delay_ns > 0 {
        put(&detail.record(FaultWhat::EventLate, "", fate.delay_ns, 0));
    }
    if fate.more > 0 {
        put(&detail.record(FaultWhat::EventsMerged, "", fate.within_ns, 0));
    }
}

//! Describes records in words, for the reader of a timeline.

use pumice_platform::ordinal::CallOrdinal;
use pumice_transport::types::{MrcLossProof, QpState};
use pumice_transport::wire::Syndrome;

use super::TimelineEventKind;
use crate::format::Record;

/// Describes a record that belongs to no queue pair.
pub(super) fn about_process(record: &Record<'_>) -> Option<(TimelineEventKind, String)> {
    let on = |qpn: Option<u32>| qpn.map_or_else(String::new, |qpn| format!(" of QP {qpn:#x}"));
    let of = |recipient: u32| if recipient == 0 { String::new() } else { format!(" for {recipient:#010x}") };
    Some(match *record {
        Record::CompletionEventRaised { cq } => {
            (TimelineEventKind::CompletionEvent, format!("completion queue {cq} fires"))
        }
        Record::CompletionEventDelivered { cq } => (
            TimelineEventKind::CompletionEvent,
            format!("the program gets an event of completion queue {cq}"),
        ),
        Record::AsyncEventRaised { event, qpn } => {
            (TimelineEventKind::AsyncEvent, format!("{event}{} is raised", on(qpn)))
        }
        Record::AsyncEventDelivered { event, qpn } => {
            (TimelineEventKind::AsyncEvent, format!("the program gets {event}{}", on(qpn)))
        }
        Record::PacketDropped { counter, source, qpn, psn, .. } => {
            let about = qpn.map_or_else(String::new, |qpn| format!(" for QP {qpn:#x}, PSN {psn}"));
            (TimelineEventKind::Drop, format!("a packet from {source}{about} is dropped: {counter}"))
        }
        Record::FaultApplied { rule, deed, class, .. } => {
            (TimelineEventKind::Fault, format!("fault \"{rule}\" {deed} {class}"))
        }
        Record::FaultNoted { text } => (TimelineEventKind::Fault, text.to_owned()),
        Record::CmSent { message, recipient, .. } => {
            (TimelineEventKind::Cm, format!("sends {message}{}", of(recipient)))
        }
        Record::CmReceived { message, recipient, .. } => {
            (TimelineEventKind::Cm, format!("receives {message}{}", of(recipient)))
        }
        Record::CmEvent { event, id, state } => {
            let state = if state.is_empty() { "over" } else { state };
            (TimelineEventKind::Cm, format!("connection {id:#010x}: {event}; it is {state}"))
        }
        Record::CallRefused { call, ordinal, errno, why } => {
            let which = ordinal
                .map_or_else(String::new, |ordinal| format!(" (call {} of this name)", CallOrdinal(ordinal)));
            (TimelineEventKind::Call, format!("{call}{which} is refused with errno {errno}: {why}"))
        }
        Record::Stalled { late_ns } => (
            TimelineEventKind::Log,
            format!("the process had no processor for {} us before this", late_ns / 1000),
        ),
        Record::Began {} => {
            (TimelineEventKind::Missing, "the recording begins here, while the program runs".to_owned())
        }
        Record::Lost { records } => {
            (TimelineEventKind::Missing, format!("{records} records are missing here"))
        }
        _ => return None,
    })
}

/// Describes a record of a queue pair that is neither a message nor a packet.
pub(super) fn about_queue_pair(record: &Record<'_>) -> Option<(TimelineEventKind, String)> {
    Some(match *record {
        Record::QpFound { state, .. } => {
            (TimelineEventKind::State, format!("was in {} when the recording began", name_of(state)))
        }
        Record::QpDestroyed { .. } => (TimelineEventKind::State, "destroyed".to_owned()),
        Record::StateChanged { from, to, by, .. } => (TimelineEventKind::State, state_in_words(from, to, by)),
        Record::Dropped { counter, psn, .. } => {
            (TimelineEventKind::Drop, format!("packet with PSN {psn} is dropped: {counter}"))
        }
        Record::OutOfSequence { psn, expected, .. } => (
            TimelineEventKind::Drop,
            format!("PSN {psn} comes, and {expected} was expected: a packet is missing"),
        ),
        Record::DuplicateRequest { psn, .. } => {
            (TimelineEventKind::Drop, format!("PSN {psn} comes again, and is not executed again"))
        }
        Record::NakSent { syndrome, psn, .. } => {
            (TimelineEventKind::Refusal, format!("answers {} to PSN {psn}", nak_in_words(syndrome)))
        }
        Record::NakReceived { syndrome, psn, .. } => {
            (TimelineEventKind::Refusal, format!("gets {} for PSN {psn}", nak_in_words(syndrome)))
        }
        Record::ImpliedNak { psn, .. } => {
            (TimelineEventKind::Refusal, format!("the answer to PSN {psn} is missing: a later one has come"))
        }
        Record::CongestionMarked { psn, .. } => {
            (TimelineEventKind::Refusal, format!("PSN {psn} was marked as congested"))
        }
        Record::CnpSent { .. } => (TimelineEventKind::Refusal, "sends a congestion notification".to_owned()),
        Record::CnpReceived { .. } => {
            (TimelineEventKind::Refusal, "gets a congestion notification".to_owned())
        }
        Record::FaultApplied { rule, deed, class, message, packet, transmission, .. } => (
            TimelineEventKind::Fault,
            format!(
                "fault \"{rule}\" {deed} {class} of message {message}, packet {packet}, \
                 transmission {transmission}"
            ),
        ),
        Record::Logged { text, .. } => (TimelineEventKind::Log, text.to_owned()),
        _ => return recovery_in_words(record),
    })
}

fn recovery_in_words(record: &Record<'_>) -> Option<(TimelineEventKind, String)> {
    let text = match *record {
        Record::PathChanged { source_port, plane, state, .. } => {
            let state = match state {
                0 => "GOOD",
                1 => "SKIP",
                2 => "ASSUMED_BAD",
                _ => "DENIED",
            };
            format!("the path of UDP source port {source_port}, in plane {plane}, is {state}")
        }
        Record::PacketLost { psn, source_port, age_ns, proof, .. } => {
            let how = MrcLossProof::from_number(proof).map_or("is lost", loss_in_words);
            format!("PSN {psn}, which left by UDP source port {source_port} {age_ns} ns before, {how}")
        }
        Record::SentAgain { psn, packets, .. } => {
            format!("goes back to PSN {psn}: {packets} packets were under way")
        }
        Record::TimedOut { psn, retries_left, timeout, .. } => format!(
            "the acknowledgement timer expires at PSN {psn} (timeout {timeout}, {retries_left} retries left)"
        ),
        Record::FellSilent { psn, .. } => {
            format!("the peer is silent about PSN {psn} for longer than its answers take")
        }
        Record::PeerStarved { psn, .. } => {
            format!("the timer expires at PSN {psn}, but the peer's process had no processor")
        }
        Record::ReceiverNotReady { psn, retries_left, wait_ns, .. } => format!(
            "the peer has no receive request for PSN {psn}: waits {} us ({retries_left} retries left)",
            wait_ns / 1000
        ),
        _ => return None,
    };
    Some((TimelineEventKind::Recovery, text))
}

fn state_in_words(from: u8, to: u8, by: u8) -> String {
    let name = name_of;
    let who = match by {
        0 => "by the program",
        1 => "because a send request failed",
        2 => "because a request of the peer or a receive request failed",
        _ => "by the device",
    };
    format!("{} to {} {who}", name(from), name(to))
}

fn name_of(state: u8) -> &'static str {
    QpState::from_verbs(u32::from(state)).map_or("?", QpState::name)
}

/// Says of a packet how its loss was found.
pub(crate) const fn loss_in_words(proof: MrcLossProof) -> &'static str {
    match proof {
        MrcLossProof::Overtaken => "is lost: packets that left later have arrived",
        MrcLossProof::Probe => "is lost: a probe that left later was answered",
        MrcLossProof::Timeout => "counts as lost: the acknowledgement timer expired",
        MrcLossProof::Trimmed => "lost its data at a switch in congestion, and the peer refuses it",
        MrcLossProof::TrimmedAtLastHop => {
            "lost its data at the last switch, which was in congestion, and the peer refuses it"
        }
        MrcLossProof::Refused => "is refused by the peer, which had no room for it",
    }
}

fn nak_in_words(syndrome: u8) -> String {
    match Syndrome::from_byte(syndrome) {
        Syndrome::RnrNak { timer_code } => format!("RNR NAK (timer code {timer_code})"),
        Syndrome::Nak(code) => format!("NAK {code:?}"),
        other => format!("{other:?}"),
    }
}

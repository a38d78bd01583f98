//! Records in words, for those who read a timeline.

use pumice_ground::ordinal::CallOrdinal;
use pumice_transport::types::QpState;
use pumice_transport::wire::Syndrome;

use super::model::MomentKind;
use crate::format::Record;

/// What happened to no queue pair in particular, in words.
pub(super) fn about_process(record: &Record<'_>) -> Option<(MomentKind, String)> {
    let on = |qpn: Option<u32>| qpn.map_or_else(String::new, |qpn| format!(" of QP {qpn:#x}"));
    let of = |recipient: u32| if recipient == 0 { String::new() } else { format!(" for {recipient:#010x}") };
    Some(match *record {
        Record::CompletionEventRaised { cq } => {
            (MomentKind::CompletionEvent, format!("completion queue {cq} fires"))
        }
        Record::CompletionEventDelivered { cq } => {
            (MomentKind::CompletionEvent, format!("the program gets an event of completion queue {cq}"))
        }
        Record::AsyncEventRaised { event, qpn } => {
            (MomentKind::AsyncEvent, format!("{event}{} is raised", on(qpn)))
        }
        Record::AsyncEventDelivered { event, qpn } => {
            (MomentKind::AsyncEvent, format!("the program gets {event}{}", on(qpn)))
        }
        Record::PacketDropped { counter, source, qpn, psn, .. } => {
            let about = qpn.map_or_else(String::new, |qpn| format!(" for QP {qpn:#x}, PSN {psn}"));
            (MomentKind::Drop, format!("a packet from {source}{about} is dropped: {counter}"))
        }
        Record::FaultApplied { rule, deed, class, .. } => {
            (MomentKind::Fault, format!("fault \"{rule}\" {deed} {class}"))
        }
        Record::FaultNoted { text } => (MomentKind::Fault, text.to_owned()),
        Record::CmSent { message, recipient, .. } => {
            (MomentKind::Cm, format!("sends {message}{}", of(recipient)))
        }
        Record::CmReceived { message, recipient, .. } => {
            (MomentKind::Cm, format!("receives {message}{}", of(recipient)))
        }
        Record::CmEvent { event, id, state } => {
            let state = if state.is_empty() { "over" } else { state };
            (MomentKind::Cm, format!("connection {id:#010x}: {event}; it is {state}"))
        }
        Record::CallRefused { call, ordinal, errno, why } => {
            let which = ordinal
                .map_or_else(String::new, |ordinal| format!(" (call {} of this name)", CallOrdinal(ordinal)));
            (MomentKind::Call, format!("{call}{which} is refused with errno {errno}: {why}"))
        }
        Record::Stalled { late_ns } => {
            (MomentKind::Log, format!("the process had no processor for {} us before this", late_ns / 1000))
        }
        Record::Began {} => {
            (MomentKind::Missing, "the recording begins here, while the program runs".to_owned())
        }
        Record::Lost { records } => (MomentKind::Missing, format!("{records} records are missing here")),
        _ => return None,
    })
}

/// What happened to a queue pair besides messages and packets, in words.
pub(super) fn about_queue_pair(record: &Record<'_>) -> Option<(MomentKind, String)> {
    Some(match *record {
        Record::QpFound { state, .. } => {
            (MomentKind::State, format!("was in {} when the recording began", name_of(state)))
        }
        Record::QpDestroyed { .. } => (MomentKind::State, "destroyed".to_owned()),
        Record::StateChanged { from, to, by, .. } => (MomentKind::State, state_in_words(from, to, by)),
        Record::Dropped { counter, psn, .. } => {
            (MomentKind::Drop, format!("packet with PSN {psn} is dropped: {counter}"))
        }
        Record::OutOfSequence { psn, expected, .. } => {
            (MomentKind::Drop, format!("PSN {psn} comes, and {expected} was expected: a packet is missing"))
        }
        Record::DuplicateRequest { psn, .. } => {
            (MomentKind::Drop, format!("PSN {psn} comes again, and is not executed again"))
        }
        Record::NakSent { syndrome, psn, .. } => {
            (MomentKind::Refusal, format!("answers {} to PSN {psn}", nak_in_words(syndrome)))
        }
        Record::NakReceived { syndrome, psn, .. } => {
            (MomentKind::Refusal, format!("gets {} for PSN {psn}", nak_in_words(syndrome)))
        }
        Record::ImpliedNak { psn, .. } => {
            (MomentKind::Refusal, format!("the answer to PSN {psn} is missing: a later one has come"))
        }
        Record::CongestionMarked { psn, .. } => {
            (MomentKind::Refusal, format!("PSN {psn} was marked as congested"))
        }
        Record::CnpSent { .. } => (MomentKind::Refusal, "sends a congestion notification".to_owned()),
        Record::CnpReceived { .. } => (MomentKind::Refusal, "gets a congestion notification".to_owned()),
        Record::FaultApplied { rule, deed, class, message, packet, transmission, .. } => (
            MomentKind::Fault,
            format!(
                "fault \"{rule}\" {deed} {class} of message {message}, packet {packet}, \
                 transmission {transmission}"
            ),
        ),
        Record::Logged { text, .. } => (MomentKind::Log, text.to_owned()),
        _ => return recovery_in_words(record),
    })
}

fn recovery_in_words(record: &Record<'_>) -> Option<(MomentKind, String)> {
    let text = match *record {
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
    Some((MomentKind::Recovery, text))
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

fn nak_in_words(syndrome: u8) -> String {
    match Syndrome::from_byte(syndrome) {
        Syndrome::RnrNak { timer_code } => format!("RNR NAK (timer code {timer_code})"),
        Syndrome::Nak(code) => format!("NAK {code:?}"),
        other => format!("{other:?}"),
    }
}

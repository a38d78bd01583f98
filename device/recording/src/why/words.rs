//! Words for stories.

use super::loss::PacketFate;
use crate::timeline::{Setback, SetbackKind, loss_in_words};

/// A part of the time is told if it is at least one in this many of the whole.
const SIGNIFICANT_SHARE: u64 = 20;

/// Formats a time with a unit that fits it.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Formats words as a sentence, with a capital letter and a full stop.
pub(super) fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first: String = letters.next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

/// Describes a setback that happened `count` times; `planned` says that a fault plan made it.
pub(super) fn setback(setback: &Setback, fate: Option<PacketFate>, count: u32, planned: bool) -> String {
    let times = if count > 1 { format!(" ({count} times in a row)") } else { String::new() };
    let waited = time(setback.at_ns.saturating_sub(setback.silent_since_ns));
    let what = match setback.kind {
        SetbackKind::TimedOut { timeout, .. } => {
            let timer = format!("the acknowledgement timer (timeout {timeout})");
            format!("{timer} expired {waited} after the last packet was sent")
        }
        SetbackKind::Silence => {
            format!(
                "the peer was silent for {waited}, which is longer than its answers take, on a lossy path"
            )
        }
        SetbackKind::SequenceNak => "the peer noticed that a packet was missing, and asked for it".to_owned(),
        SetbackKind::MissingAnswer => "a later answer showed that an answer was lost".to_owned(),
        SetbackKind::ReceiverNotReady { wait_ns, .. } if planned => {
            format!("an RNR NAK asked for {} of patience", time(wait_ns))
        }
        SetbackKind::ReceiverNotReady { wait_ns, .. } => {
            format!("the peer had no receive request posted, and asked for {} of patience", time(wait_ns))
        }
        SetbackKind::Lost { psn, proof } => {
            format!("PSN {psn} {}, {waited} after it was sent", loss_in_words(proof))
        }
        SetbackKind::PeerStarved => format!("the peer's process had no processor for {waited}"),
    };
    let whose = if setback.is_own { "" } else { "; that was about a request before it" };
    let lost = fate.map_or_else(String::new, |fate| format!(": {}", lost(fate)));
    format!("{what}{times}{lost}{whose}")
}

fn lost(fate: PacketFate) -> String {
    match fate {
        PacketFate::PacketLostByPlan { psn } => format!("the fault plan had lost its packet with PSN {psn}"),
        PacketFate::PacketLost { psn } => format!("its packet with PSN {psn} did not arrive at the peer"),
        PacketFate::PacketDropped { psn } => format!("its packet with PSN {psn} was dropped by the peer"),
        PacketFate::AnswerLostByPlan { is_response, .. } => {
            format!("its packets had arrived, and the fault plan had lost the peer's {}", answer(is_response))
        }
        PacketFate::AnswerLost { is_response, .. } => {
            format!("its packets had arrived, and the peer's {} did not", answer(is_response))
        }
        PacketFate::OnTheWay { psn } => format!("its packet with PSN {psn} was still on its way"),
        PacketFate::NoAnswer => "its packets had arrived, and the peer had not answered".to_owned(),
        PacketFate::Unknown => {
            "a packet or its answer was lost; the peer's trace would tell which".to_owned()
        }
    }
}

const fn answer(is_response: bool) -> &'static str {
    if is_response { "response" } else { "acknowledgement" }
}

/// Returns the remedy for a status.
pub(super) fn of_status(status: Option<&str>) -> Option<&'static str> {
    match status? {
        "RETRY_EXC_ERR" => {
            Some("see whether the peer lives, is in RTR and can be reached; else raise retry_cnt")
        }
        "RNR_RETRY_EXC_ERR" => {
            Some("post receive requests at the peer earlier, or set rnr_retry to 7: for ever")
        }
        "REM_ACCESS_ERR" => {
            Some("compare address, length, R_Key and access rights with the peer's memory region")
        }
        "REM_INV_REQ_ERR" => {
            Some("compare the message with the peer's receive buffer, and the rights of its queue pair")
        }
        "LOC_PROT_ERR" => Some("compare the buffers of the request with their memory region"),
        _ => None,
    }
}

pub(super) const fn is_share(ns: u64, of_ns: u64, share: u64) -> bool {
    ns > 0 && ns >= of_ns / share
}

/// Reports whether a part of the time is long enough to be told.
pub(super) const fn is_significant(ns: u64, of_ns: u64) -> bool {
    is_share(ns, of_ns, SIGNIFICANT_SHARE)
}

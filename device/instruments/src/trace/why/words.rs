//! A story in words.

use super::loss::Fate;
use super::times::{Part, PartKind};
use crate::trace::timeline::{Message, Setback, SetbackKind};

/// A part of the time is told if it is at least this share of it: one in so many.
const TOLD_SHARE: u64 = 20;
/// It is worth a remedy if it is at least this share: one in so many.
const REMEDY_SHARE: u64 = 4;

/// A time with a unit that fits it.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// What kept a message from going on, so many times.
pub(super) fn setback(setback: &Setback, fate: Option<Fate>, count: u32) -> String {
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
        SetbackKind::ReceiverNotReady { wait_ns, .. } => {
            format!("the peer had no receive request posted, and asked for {} of patience", time(wait_ns))
        }
        SetbackKind::PeerStarved => format!("the peer's process had no processor for {waited}"),
    };
    let whose = if setback.is_own { "" } else { "; that was about a request before it" };
    let lost = fate.map_or_else(String::new, |fate| format!(": {}", lost(fate)));
    format!("{what}{times}{lost}{whose}")
}

fn lost(fate: Fate) -> String {
    match fate {
        Fate::PacketLostByPlan { psn } => format!("the fault plan had lost its packet with PSN {psn}"),
        Fate::PacketLost { psn } => format!("its packet with PSN {psn} did not arrive at the peer"),
        Fate::PacketDropped { psn } => format!("its packet with PSN {psn} was dropped by the peer"),
        Fate::AnswerLostByPlan => {
            "its packets had arrived, and the fault plan had lost the peer's answer".to_owned()
        }
        Fate::AnswerLost => "its packets had arrived, and the peer's answer did not".to_owned(),
        Fate::NoAnswer => "its packets were on their way or at the peer, which had not answered".to_owned(),
        Fate::Unknown => "a packet or its answer was lost; the peer's trace would tell which".to_owned(),
    }
}

/// What to change: about the parts that are told, and about the status.
pub(super) fn remedies(
    parts: &[Part],
    duration_ns: u64,
    before: u64,
    status: Option<&str>,
    message: &Message,
) -> Vec<String> {
    let timeout = message.setbacks.iter().find_map(|setback| match setback.kind {
        SetbackKind::TimedOut { timeout, .. } => Some(timeout),
        _ => None,
    });
    let mut remedies = Vec::new();
    let long = parts.iter().filter(|part| is_share(part.ns, duration_ns, REMEDY_SHARE));
    for kind in long.map(|part| part.kind) {
        remedies.extend(remedy(kind, timeout, before));
    }
    let of_status = match status {
        Some("RETRY_EXC_ERR") => {
            Some("see whether the peer lives, is in RTR and can be reached; else raise retry_cnt")
        }
        Some("RNR_RETRY_EXC_ERR") => {
            Some("post receive requests at the peer earlier, or set rnr_retry to 7: for ever")
        }
        Some("REM_ACCESS_ERR") => {
            Some("compare address, length, R_Key and access rights with the peer's memory region")
        }
        Some("REM_INV_REQ_ERR") => {
            Some("compare the message with the peer's receive buffer, and the rights of its queue pair")
        }
        Some("LOC_PROT_ERR") => Some("compare the buffers of the request with their memory region"),
        _ => None,
    };
    remedies.extend(of_status.map(str::to_owned));
    remedies
}

fn remedy(kind: PartKind, timeout: Option<u8>, before: u64) -> Option<String> {
    Some(match kind {
        PartKind::SendQueue if before > 0 => format!(
            "{before} requests were before it on the queue pair: post fewer at once, or spread them over \
             several queue pairs"
        ),
        PartKind::SendQueue => {
            "the queue pair waited to send: see its states and repetitions before".to_owned()
        }
        PartKind::Timeout => {
            let now = timeout.filter(|timeout| (1..32).contains(timeout));
            let now = now.map_or_else(String::new, |timeout| {
                format!(" (now {timeout}: {} at least)", time(4096_u64 << timeout))
            });
            format!("keep the path from losing packets; a smaller `timeout`{now} notices a loss sooner")
        }
        PartKind::Silence => "keep the path from losing packets".to_owned(),
        PartKind::ReceiverNotReady => "post receive requests at the peer before messages come; a smaller \
             min_rnr_timer of the peer shortens the wait"
            .to_owned(),
        PartKind::PeerStarved => "give the peer's process a processor: fewer programs that spin".to_owned(),
        PartKind::Completion => {
            "requests complete in their order: look for what held up those before it".to_owned()
        }
        PartKind::Poll => "poll more often, or wait for completion events in a thread of its own".to_owned(),
        PartKind::Network => return None,
    })
}

const fn is_share(ns: u64, of_ns: u64, share: u64) -> bool {
    ns > 0 && ns >= of_ns / share
}

/// Whether a part of the time is told.
pub(super) const fn is_told(ns: u64, of_ns: u64) -> bool {
    is_share(ns, of_ns, TOLD_SHARE)
}

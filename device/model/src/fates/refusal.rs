//! The names that refusals of requests have in plans.

use pumice_transport::wire::{NakCode, Syndrome};

/// The name of an RNR NAK in plans.
pub const RNR: &str = "rnr";

/// The names of NAKs in plans.
pub const NAKS: [(&str, NakCode); 4] = [
    ("sequence", NakCode::Sequence),
    ("access", NakCode::RemoteAccess),
    ("operation", NakCode::RemoteOperation),
    ("invalid-request", NakCode::InvalidRequest),
];

/// Returns the name of a refusal in plans, and the timer code of an RNR NAK; `None` if plans have no name for
/// it.
pub fn word_of(syndrome: Syndrome) -> Option<(&'static str, Option<u8>)> {
    match syndrome {
        Syndrome::RnrNak { timer_code } => Some((RNR, Some(timer_code))),
        Syndrome::Nak(code) => NAKS.iter().find(|(_, known)| *known == code).map(|(word, _)| (*word, None)),
        Syndrome::Ack { .. } | Syndrome::Reserved(_) => None,
    }
}

/// Returns the name of a refusal in plans.
pub fn answer_word(syndrome: Syndrome) -> Option<&'static str> {
    word_of(syndrome).map(|(word, _)| word)
}

//! What gives figures, round after round.

use super::figure::Round;

/// Something that is started once for a row and asked in each of its rounds.
pub(super) trait Source {
    /// A round of about so many seconds.
    fn round(&mut self, seconds: f64) -> Result<Round, Unmeasured>;
}

/// Why there is no figure: a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unmeasured {
    /// This machine lacks what the measurement needs.
    NotHere(String),
    /// The measurement went wrong.
    Failed(String),
}

impl Unmeasured {
    pub(super) fn reason(&self) -> &str {
        match self {
            Unmeasured::NotHere(reason) | Unmeasured::Failed(reason) => reason,
        }
    }
}

/// A sentence of what went wrong.
impl From<String> for Unmeasured {
    fn from(sentence: String) -> Unmeasured {
        Unmeasured::Failed(sentence)
    }
}

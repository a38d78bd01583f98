//! A source of figures, round after round.

use super::figure::RoundFigures;

/// A measurement that is started once for a row and queried in each of its rounds.
pub(super) trait FigureSource {
    /// Measures a round of about this many seconds.
    fn round(&mut self, seconds: f64) -> Result<RoundFigures, Unmeasured>;
}

/// The reason why there is no figure, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unmeasured {
    /// The machine lacks what the measurement needs.
    Unavailable(String),
    /// The measurement failed.
    Failed(String),
}

impl Unmeasured {
    pub(super) fn reason(&self) -> &str {
        match self {
            Unmeasured::Unavailable(reason) | Unmeasured::Failed(reason) => reason,
        }
    }
}

/// Converts a sentence to a failure.
impl From<String> for Unmeasured {
    fn from(sentence: String) -> Unmeasured {
        Unmeasured::Failed(sentence)
    }
}

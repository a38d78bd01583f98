//! Stories as findings.

use pumice_events::findings::{Family, Fields, Finding, FindingKind, Level};

use super::story::Story;

/// A message whose completion has an error.
static FAILED: FindingKind =
    FindingKind::new("message-failed", Family::Messages, Level::Error, "A message completed with an error.");
/// A message that is told of because of the time it took.
static SLOW: FindingKind = FindingKind::new(
    "message-slow",
    Family::Messages,
    Level::Note,
    "A message took longer than most others.",
);
/// A message without a completion.
static UNFINISHED: FindingKind = FindingKind::new(
    "message-unfinished",
    Family::Messages,
    Level::Warning,
    "A message had not ended when the trace ended.",
);

impl Story {
    /// The finding that it is: its sentence is the whole story, and its evidence has all fields.
    pub fn to_finding(&self) -> Finding {
        let kind = match self.status.as_deref() {
            None => &UNFINISHED,
            Some("SUCCESS") => &SLOW,
            Some(_) => &FAILED,
        };
        let subject = format!("request {} of QP {:#x}", self.message, self.qpn);
        let remedy = Some(self.remedies.join("; ")).filter(|remedy| !remedy.is_empty());
        Finding { remedy, ..Finding::new(kind, subject, self.to_string()).with_evidence(Fields::of(self)) }
    }
}

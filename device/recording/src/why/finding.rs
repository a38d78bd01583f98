//! Converts stories to findings.

use pumice_model::findings::{Fields, Finding, FindingFamily, FindingKind, Level};

use super::group::CauseGroup;
use super::story::MessageStory;
use super::words;

/// A message whose completion has an error.
static FAILED: FindingKind = FindingKind::new(
    "message-failed",
    FindingFamily::Messages,
    Level::Error,
    "A message completed with an error.",
);
/// A message that is reported because of the time it took.
static SLOW: FindingKind = FindingKind::new(
    "message-slow",
    FindingFamily::Messages,
    Level::Note,
    "A message took longer than most others.",
);
/// A message without a completion.
static UNFINISHED: FindingKind = FindingKind::new(
    "message-unfinished",
    FindingFamily::Messages,
    Level::Warning,
    "A message had not ended when the trace ended.",
);

/// An effect of a fault plan, and its consequences.
static INJECTED: FindingKind = FindingKind::new(
    "injected",
    FindingFamily::Messages,
    Level::Note,
    "A fault plan made it: neither the network nor the peer nor the program did.",
);
/// A cause that held messages up and is no failure itself.
static HELD_UP: FindingKind = FindingKind::new(
    "time-lost",
    FindingFamily::Messages,
    Level::Note,
    "Time that belongs to no send request.",
);

impl CauseGroup {
    /// Returns the group as a finding: its sentence says the cause, its first effect, and the number of other
    /// effects.
    pub fn to_finding(&self) -> Finding {
        let others = self.others_in_words();
        let mut finding = match &self.story {
            Some(story) => Finding { sentence: story.in_words(&others), ..story.to_finding() },
            None => {
                let sentences = [self.cause.sentence.clone(), self.alone_in_words(), others];
                let remedy = self.cause.remedy();
                let change = remedy.as_ref().map(|remedy| format!("what to change: {remedy}"));
                let in_words = sentences.into_iter().filter(|one| !one.is_empty()).chain(change);
                let text: Vec<String> = in_words.map(|one| words::sentence(&one)).collect();
                Finding { remedy, ..Finding::new(&HELD_UP, self.cause.kind.name(), text.join(" ")) }
            }
        };
        if self.cause.rule.is_some() {
            (finding.kind, finding.level) = (&INJECTED, Level::Note);
        }
        finding.count = self.others + 1;
        let mut evidence = std::mem::take(&mut finding.evidence);
        if self.story.is_none() {
            evidence = evidence.with("cause", Fields::of(&self.cause));
        }
        finding.with_evidence(
            evidence
                .with("others", self.others)
                .with("held_up_ns", self.ns)
                .with("needs", self.cause.kind.needs()),
        )
    }

    /// Says how long it lasted, and that no message shows it.
    fn alone_in_words(&self) -> String {
        match &self.cause.rule {
            Some(_) if self.ns == 0 => "no message of the traces lost time by it".to_owned(),
            Some(_) => format!("no request has this time in it: {}", words::time(self.ns)),
            None => String::new(),
        }
    }

    fn others_in_words(&self) -> String {
        match self.others {
            0 => String::new(),
            1 => "and 1 other of the same cause".to_owned(),
            others => format!("and {others} others of the same cause"),
        }
    }
}

impl MessageStory {
    /// Returns the story as a finding: its sentence is the whole story, and its evidence has all fields.
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

//! Something that is wrong, or that was looked at.

use super::call_site::{CallSite, Frame};
use super::fields::Fields;
use super::kind::{FindingKind, Level};

/// Something that is wrong, or that was looked at and is as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: &'static FindingKind,
    /// How much it matters.
    pub level: Level,
    /// The object, the call or the part of the machine that it is about, as in "queue pair 3 (number 0x12)";
    /// empty if the kind says it.
    pub subject: String,
    /// What was found, with its numbers.
    pub sentence: String,
    /// What to do about it; `None`: nothing has to be done.
    pub remedy: Option<String>,
    /// Where the program did it.
    pub site: CallSite,
    /// Other sites that belong to it.
    pub related: Vec<CallSite>,
    /// What it rests on, for programs.
    pub evidence: Fields,
    /// How often it was found.
    pub count: u64,
}

impl Finding {
    /// A finding of a kind, with the level and the remedy of that kind; found once, at no known site.
    pub fn new(
        kind: &'static FindingKind,
        subject: impl Into<String>,
        sentence: impl Into<String>,
    ) -> Finding {
        Finding {
            kind,
            level: kind.level,
            subject: subject.into(),
            sentence: sentence.into(),
            remedy: Some(kind.remedy).filter(|remedy| !remedy.is_empty()).map(str::to_owned),
            site: CallSite::default(),
            related: Vec::new(),
            evidence: Fields::default(),
            count: 1,
        }
    }

    /// The same at another level.
    pub fn at_level(mut self, level: Level) -> Finding {
        self.level = level;
        self
    }

    /// The same with a remedy of its own.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same with what it rests on.
    pub fn with_evidence(mut self, evidence: Fields) -> Finding {
        self.evidence = evidence;
        self
    }

    /// The innermost frame of its site, or of the first other site if its own is not known.
    pub fn innermost(&self) -> Option<&Frame> {
        let related = || self.related.first()?.frames.first();
        self.site.frames.first().or_else(related)
    }
}

//! Findings: problems, and checked items without a problem.

use super::call_site::{CallSite, Frame};
use super::fields::Fields;
use super::kind::{FindingKind, Level};

/// A problem, or an item that was checked and has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding.
    pub kind: &'static FindingKind,
    /// The importance of the finding.
    pub level: Level,
    /// The object, the call or the part of the machine that the finding is about, as in "queue pair 3 (number
    /// 0x12)"; empty if the kind says it.
    pub subject: String,
    /// A sentence about the finding, with its numbers.
    pub sentence: String,
    /// The remedy; `None`: nothing has to be done.
    pub remedy: Option<String>,
    /// The call site in the program.
    pub site: CallSite,
    /// Other call sites that belong to the finding.
    pub related: Vec<CallSite>,
    /// The evidence, for programs to read.
    pub evidence: Fields,
    /// Number of times that the finding was made.
    pub count: u64,
}

impl Finding {
    /// Returns a finding of a kind, with the level and the remedy of that kind; found once, at no known site.
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

    /// Sets the level.
    pub fn at_level(mut self, level: Level) -> Finding {
        self.level = level;
        self
    }

    /// Sets a remedy that differs from that of the kind.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sets the evidence.
    pub fn with_evidence(mut self, evidence: Fields) -> Finding {
        self.evidence = evidence;
        self
    }

    /// Returns the innermost frame of the finding's site, or of the first other site if its own is not known.
    pub fn innermost(&self) -> Option<&Frame> {
        let related = || self.related.first()?.frames.first();
        self.site.frames.first().or_else(related)
    }
}

//! What was recorded, with its symbols, as findings that are printed.

use pumice_events::findings::{Finding, Report, print, text};

pub use pumice_events::findings::{About, CallSite, Frame, ReportFormat as Format};

use pumice_profile::settings::Marks;

use super::kind::{FAILURE_INJECTED, KINDS};
use super::recorded::Recorded;

/// What was recorded, with its symbols.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What was recorded.
    pub finding: Recorded,
    /// Frames of its site, the innermost first.
    pub frames: Vec<Frame>,
    /// Other sites.
    pub related: Vec<CallSite>,
}

impl Entry {
    /// What was recorded, with the symbols that `symbols` finds for return addresses.
    pub fn new(recorded: Recorded, mut symbols: impl FnMut(&[u64]) -> Vec<Frame>) -> Entry {
        let frames = symbols(recorded.place.addresses());
        let sites = recorded.related.iter();
        let related = sites
            .map(|one| CallSite { what: one.what.clone(), frames: symbols(one.place.addresses()) })
            .collect();
        Entry { finding: recorded, frames, related }
    }

    /// The finding that it is.
    pub fn to_finding(&self) -> Finding {
        let Recorded { kind, object, numbers, count, .. } = &self.finding;
        Finding {
            site: CallSite { what: String::new(), frames: self.frames.clone() },
            related: self.related.clone(),
            count: *count,
            ..Finding::new(kind, object, numbers)
        }
    }

    /// What the command that started the program is told of it.
    pub fn marks(&self) -> Marks {
        let kind = self.finding.kind;
        let has_injected = kind.name == FAILURE_INJECTED.name;
        Marks { worst: Some(kind.level).filter(|_| !has_injected), has_injected, lacks_report: false }
    }

    /// The finding as a paragraph for people, whose last line has no end.
    pub fn paragraph(&self) -> String {
        text::paragraph(&self.to_finding())
    }
}

/// The end of a report for people: how often each entry was found. The last line has no end.
pub fn summary(entries: &[Entry], about: &About) -> String {
    with_report(entries, about, text::summary)
}

/// All findings of a process as one document.
pub fn document(entries: &[Entry], about: &About, format: Format) -> String {
    with_report(entries, about, |report| print(report, format))
}

fn with_report(entries: &[Entry], about: &About, print: impl FnOnce(&Report<'_>) -> String) -> String {
    let findings: Vec<Finding> = entries.iter().map(Entry::to_finding).collect();
    print(&Report { command: "check", about, kinds: KINDS, findings: &findings })
}

//! Recorded findings with their symbols, as findings that are printed.

use pumice_model::findings::{Finding, FindingsReport, print, text};

pub use pumice_model::findings::{CallSite, Frame, ReportFormat as Format, ReportHeader};

use pumice_model::settings::Marks;

use super::kind::{FAILURE_INJECTED, KINDS, OBJECTS_LEFT};
use super::recorded::RecordedFinding;

/// Number of objects that were left which are named beside the first.
const MAX_LEFT: usize = 6;

/// A recorded finding with its symbols.
#[derive(Debug, Clone)]
pub struct ReportEntry {
    /// Recorded finding.
    pub finding: RecordedFinding,
    /// Frames of its call site, the innermost first.
    pub frames: Vec<Frame>,
    /// Other call sites.
    pub related: Vec<CallSite>,
}

impl ReportEntry {
    /// Creates an entry, with the symbols that `symbols` returns for return addresses.
    pub fn new(recorded: RecordedFinding, mut symbols: impl FnMut(&[u64]) -> Vec<Frame>) -> ReportEntry {
        let frames = symbols(recorded.call_site.addresses());
        let sites = recorded.related.iter();
        let related = sites
            .map(|one| CallSite { what: one.what.clone(), frames: symbols(one.call_site.addresses()) })
            .collect();
        ReportEntry { finding: recorded, frames, related }
    }

    /// Returns the finding that the entry describes.
    pub fn to_finding(&self) -> Finding {
        let RecordedFinding { kind, object, numbers, count, .. } = &self.finding;
        Finding {
            site: CallSite { what: String::new(), frames: self.frames.clone() },
            related: self.related.clone(),
            count: *count,
            ..Finding::new(kind, object, numbers)
        }
    }

    /// Returns what the command that started the program needs to know of the finding.
    pub fn marks(&self) -> Marks {
        let kind = self.finding.kind;
        let has_injected = kind.name == FAILURE_INJECTED.name;
        let worst = Some(kind.level).filter(|_| !has_injected);
        Marks { worst, has_injected, ..Marks::default() }
    }

    /// Returns the finding as a paragraph for people, without a newline at its end.
    pub fn paragraph(&self) -> String {
        text::paragraph(&self.to_finding())
    }
}

/// Returns findings as paragraphs for people. Objects that were left share one: a program that forgets one
/// often forgets all.
pub fn paragraphs(entries: &[ReportEntry]) -> Vec<String> {
    let (left, others): (Vec<&ReportEntry>, Vec<&ReportEntry>) =
        entries.iter().partition(|entry| entry.finding.kind.name == OBJECTS_LEFT.name);
    let mut paragraphs: Vec<String> = others.into_iter().map(ReportEntry::paragraph).collect();
    if let Some((first, rest)) = left.split_first() {
        let mut finding = first.to_finding();
        let named = rest.iter().take(MAX_LEFT).map(|entry| {
            let at = entry.frames.first().map(|frame| format!(" at {frame}")).unwrap_or_default();
            format!("{}{at}", entry.finding.object)
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match rest.len().saturating_sub(MAX_LEFT) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if !rest.is_empty() {
            finding.sentence = format!("{}; and so were {named}{more}", finding.sentence);
        }
        // The object was made at the call site of the finding.
        finding.related.clear();
        paragraphs.push(text::paragraph(&finding));
    }
    paragraphs
}

/// Returns the end of a report for people: how often each entry was found. It has no newline at its end.
pub fn summary(entries: &[ReportEntry], about: &ReportHeader) -> String {
    with_report(entries, about, text::summary)
}

/// Returns all findings of a process as one document.
pub fn document(entries: &[ReportEntry], about: &ReportHeader, format: Format) -> String {
    with_report(entries, about, |report| print(report, format))
}

fn with_report(
    entries: &[ReportEntry],
    about: &ReportHeader,
    print: impl FnOnce(&FindingsReport<'_>) -> String,
) -> String {
    let findings: Vec<Finding> = entries.iter().map(ReportEntry::to_finding).collect();
    print(&FindingsReport { command: "check", about, kinds: KINDS, findings: &findings })
}

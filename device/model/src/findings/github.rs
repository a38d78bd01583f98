//! Findings as annotations of GitHub Actions: lines that a step prints, which GitHub shows beside the code.

use std::fmt::Write as _;

use super::finding::Finding;
use super::kind::Level;
use super::report::FindingsReport;

/// Returns a line for each finding that is no mere "ok"; if there is none, one that says so.
pub(super) fn document(report: &FindingsReport<'_>) -> String {
    let mut out = String::new();
    for finding in report.findings {
        line(&mut out, report.command, finding);
    }
    if out.is_empty() {
        let _ = writeln!(out, "pumice {}: {}", report.command, report.counted());
    }
    out
}

fn line(out: &mut String, command: &str, finding: &Finding) {
    let word = match finding.level {
        Level::Ok => return,
        Level::Note => "notice",
        Level::Warning => "warning",
        Level::Error => "error",
    };
    let title = format!("pumice {command}: {}", finding.kind.name);
    let mut properties = format!("title={}", property(&title));
    if let Some((file, line)) =
        finding.innermost().and_then(|frame| Some((frame.file.as_ref()?, frame.line?)))
    {
        let _ = write!(properties, ",file={},line={line}", property(file));
    }
    let subject = if finding.subject.is_empty() { String::new() } else { format!("{}: ", finding.subject) };
    let _ = writeln!(out, "::{word} {properties}::{}", data(&format!("{subject}{}", finding.sentence)));
}

/// Escapes a message as GitHub's runner reads it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::kind::{FindingFamily, FindingKind};
    use super::super::report::ReportHeader;
    use super::*;

    #[test]
    fn what_could_end_a_line_is_escaped() {
        static KIND: FindingKind = FindingKind::new("slow", FindingFamily::Slow, Level::Error, "It is slow.");
        let found = [Finding::new(&KIND, "a", "50 % more\n::error::x")];
        let about = ReportHeader::default();
        let report = FindingsReport { command: "x", about: &about, kinds: &[&KIND], findings: &found };
        assert_eq!(document(&report), "::error title=pumice x%3A slow::a: 50 %25 more%0A::error::x\n");
        let none = FindingsReport { findings: &[], ..report };
        assert_eq!(document(&none), "pumice x: nothing was found\n");
    }
}

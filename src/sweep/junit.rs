//! Runs as JUnit test cases, which CI servers show.

use pumice_device::findings::junit::{CaseEnd, JunitCase, cases};
use pumice_device::findings::{Finding, FindingsReport, Level, ReportHeader};

use super::options::SweepOptions;
use super::verdict::{Judgement, KINDS, SweepVerdict};

/// Returns the document, with a test case for each run.
pub(super) fn document(judgements: &[Judgement], findings: &[Finding], options: &SweepOptions) -> String {
    let program = options.program.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let about = ReportHeader { program: program.into_owned(), is_whole: true, ..ReportHeader::default() };
    let report = FindingsReport { command: "sweep", about: &about, kinds: &KINDS, findings };
    cases(&report, |number, finding| {
        let judgement = judgements.get(number);
        let end = match judgement.map(|judgement| judgement.verdict) {
            _ if finding.level == Level::Error => CaseEnd::Failed,
            Some(SweepVerdict::Unmade) => CaseEnd::Skipped,
            _ => CaseEnd::Passed,
        };
        let seconds = judgement.map(|judgement| judgement.seconds);
        JunitCase { name: finding.subject.clone(), seconds, end, details: String::new() }
    })
}

//! Runs as test cases, which CI servers show.

use pumice_device::findings::junit::{Case, CaseEnd, cases};
use pumice_device::findings::{About, Finding, Level, Report};

use super::options::SweepOptions;
use super::verdict::{Judgement, KINDS, Verdict};

/// The document: a test case for each run.
pub(super) fn document(judgements: &[Judgement], findings: &[Finding], options: &SweepOptions) -> String {
    let program = options.program.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let about = About { program: program.into_owned(), is_whole: true, ..About::default() };
    let report = Report { command: "sweep", about: &about, kinds: &KINDS, findings };
    cases(&report, |number, finding| {
        let judgement = judgements.get(number);
        let end = match judgement.map(|judgement| judgement.verdict) {
            _ if finding.level == Level::Error => CaseEnd::Failed,
            Some(Verdict::Unmade) => CaseEnd::Skipped,
            _ => CaseEnd::Passed,
        };
        let seconds = judgement.map(|judgement| judgement.seconds);
        Case { name: finding.subject.clone(), seconds, end, details: String::new() }
    })
}

//! Findings that the tests of all printers print.

use super::finding::{CallSite, Finding, FindingFamily, FindingKind, Frame, Level};
use super::json::{ReportFormat, print};
use super::sarif::{FindingsReport, ReportHeader};

pub(super) static TOO_SMALL: FindingKind = FindingKind {
    name: "cq-too-small",
    family: FindingFamily::Completions,
    level: Level::Warning,
    what: "A completion queue is too small.",
    why: "It overruns.",
    remedy: "Make it deeper.",
};
static ODD: FindingKind = FindingKind::new("odd", FindingFamily::Machine, Level::Error, "It is odd.");
pub(super) static KINDS: [&FindingKind; 2] = [&TOO_SMALL, &ODD];

/// Returns a finding with everything that one may have, and one with as little as possible.
pub(super) fn all_found() -> Vec<Finding> {
    let frame = |function: &str, line| Frame {
        function: Some(function.to_owned()),
        file: Some("/src/a b.c".to_owned()),
        line,
        object: "server".to_owned(),
        offset: 0x40,
    };
    let frames = vec![Frame { file: None, ..frame("post", None) }, frame("main", Some(7))];
    let mut whole =
        Finding::new(&TOO_SMALL, "completion queue 0", "completion queue 0 has room for 1 completion");
    whole.related = vec![CallSite { what: "it was made here".to_owned(), frames: frames.clone() }];
    whole.site = CallSite { what: String::new(), frames };
    whole.count = 3;
    vec![whole, Finding::new(&ODD, "a | b", "a <b> | \"c\" & *d*")]
}

pub(super) fn a_report(findings: &[Finding]) -> FindingsReport<'_> {
    static REPORT_HEADER: std::sync::LazyLock<ReportHeader> = std::sync::LazyLock::new(|| ReportHeader {
        program: "server".to_owned(),
        process: 7,
        is_whole: true,
        ended_by: "",
        suppressed: 2,
        left_out: 0,
    });
    FindingsReport { command: "check", about: &REPORT_HEADER, kinds: &KINDS, findings }
}

#[test]
fn every_format_has_a_printer_that_ends_its_last_line() {
    let found = all_found();
    for name in ["text", "json", "sarif", "junit", "markdown", "github"] {
        let format = ReportFormat::named(name).unwrap();
        let document = print(&a_report(&found), format);
        assert!(document.ends_with('\n') && document.contains("cq-too-small"), "{name}: {document}");
    }
}

//! Findings as JUnit XML.

use std::fmt::Write as _;

use super::finding::Finding;
use super::kind::Level;
use super::report::Report;
use super::text::{paragraph, times};

/// How a test case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseEnd {
    /// Well.
    Passed,
    /// With the finding.
    Failed,
    /// There was nothing to test, or what was found is no mistake.
    Skipped,
}

/// A finding as a test case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// How long it took, in seconds; `None`: it is not known.
    pub seconds: Option<f64>,
    /// How it ended.
    pub end: CaseEnd,
    /// What else is to be read about it; empty if nothing is.
    pub details: String,
}

impl Case {
    /// The case of a finding about which no more is known: notes are skipped, and warnings fail.
    fn of(finding: &Finding) -> Case {
        let end = match finding.level {
            Level::Ok => CaseEnd::Passed,
            Level::Note => CaseEnd::Skipped,
            Level::Warning | Level::Error => CaseEnd::Failed,
        };
        let name = format!("{}: {}, {}", finding.kind.name, finding.subject, times(finding.count));
        Case { name, seconds: None, end, details: paragraph(finding) }
    }
}

/// A suite with a test case for each finding, or with one that passed if nothing was found.
pub(super) fn document(report: &Report<'_>) -> String {
    let mut cases: Vec<(Case, Option<&Finding>)> =
        report.findings.iter().map(|finding| (Case::of(finding), Some(finding))).collect();
    if cases.is_empty() {
        // Some servers take a suite without a case for a run that went wrong.
        let name = report.counted();
        cases.push((Case { name, seconds: None, end: CaseEnd::Passed, details: String::new() }, None));
    }
    suite(report, &cases)
}

/// A suite with a test case for each finding, which `case` makes of the n-th one, from 0.
pub fn cases(report: &Report<'_>, case: impl Fn(usize, &Finding) -> Case) -> String {
    let findings = report.findings.iter().enumerate();
    let cases: Vec<(Case, Option<&Finding>)> =
        findings.map(|(number, finding)| (case(number, finding), Some(finding))).collect();
    suite(report, &cases)
}

fn suite(report: &Report<'_>, cases: &[(Case, Option<&Finding>)]) -> String {
    let count = |end| cases.iter().filter(|(case, _)| case.end == end).count();
    let (failures, skipped) = (count(CaseEnd::Failed), count(CaseEnd::Skipped));
    let (command, program) = (report.command, escaped(&report.about.program));
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuite name=\"pumice {command} {program}\" tests=\"{}\" failures=\"{failures}\" \
         skipped=\"{skipped}\">",
        cases.len()
    );
    for (case, finding) in cases {
        let _ = write!(xml, "  <testcase classname=\"{program}\" name=\"{}\"", escaped(&case.name));
        if let Some(seconds) = case.seconds {
            let _ = write!(xml, " time=\"{seconds:.3}\"");
        }
        let message = finding.map(|finding| escaped(&finding.sentence)).unwrap_or_default();
        let kind = finding.map(|finding| finding.kind.name).unwrap_or_default();
        let element = match case.end {
            CaseEnd::Passed => {
                xml.push_str("/>\n");
                continue;
            }
            CaseEnd::Failed => format!("failure type=\"{kind}\" message=\"{message}\""),
            CaseEnd::Skipped => format!("skipped message=\"{message}\""),
        };
        let _ = write!(xml, ">\n    <{element}");
        if case.details.is_empty() {
            xml.push_str("/>\n");
        } else {
            let name = element.split(' ').next().unwrap_or_default();
            let _ = writeln!(xml, ">{}</{name}>", content(&case.details));
        }
        xml.push_str("  </testcase>\n");
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// Text of an attribute. Characters that XML does not have are left out.
fn escaped(text: &str) -> String {
    content(text).replace('\n', "")
}

/// Text of an element. Characters that XML does not have are left out.
fn content(text: &str) -> String {
    let mut out = String::new();
    let is_of_xml = |c: &char| *c == '\n' || (*c >= ' ' && !matches!(*c, '\u{fffe}' | '\u{ffff}'));
    for c in text.chars().filter(is_of_xml) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{a_report, all_found};
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b> & \"c\"\u{1b}\n"), "a&lt;b&gt; &amp; &quot;c&quot;");
        assert_eq!(content("a\n\u{ffff}b"), "a\nb");
    }

    #[test]
    fn a_suite_has_a_case_for_each_finding() {
        let mut found = all_found();
        found[0].level = Level::Note;
        let xml = document(&a_report(&found));
        for part in [
            "<testsuite name=\"pumice check server\" tests=\"2\" failures=\"1\" skipped=\"1\">\n",
            "  <testcase classname=\"server\" name=\"cq-too-small: completion queue 0, 3 times\">\n",
            "    <skipped message=\"completion queue 0 has room for 1 completion\">cq-too-small: ",
            "    main (/src/a b.c:7)\n",
            "</skipped>\n  </testcase>\n",
            "name=\"odd: a | b, once\">\n    <failure type=\"odd\" message=\"a &lt;b&gt; | ",
            "&quot;c&quot; &amp; *d*\">odd: a &lt;b&gt; | ",
            "</failure>\n  </testcase>\n</testsuite>\n",
        ] {
            assert!(xml.contains(part), "{part}\n{xml}");
        }
        let xml = document(&Report { findings: &[], ..a_report(&found) });
        let case = "<testcase classname=\"server\" name=\"nothing was found\"/>\n";
        assert!(xml.contains("tests=\"1\" failures=\"0\"") && xml.contains(case), "{xml}");
    }

    #[test]
    fn a_command_makes_cases_of_its_own() {
        let found = all_found();
        let case = |_: usize, finding: &Finding| Case {
            name: finding.kind.name.to_owned(),
            seconds: Some(1.5),
            end: if finding.count > 1 { CaseEnd::Passed } else { CaseEnd::Failed },
            details: String::new(),
        };
        let xml = cases(&a_report(&found), case);
        let wanted = "  <testcase classname=\"server\" name=\"cq-too-small\" time=\"1.500\"/>\n  <testcase \
                      classname=\"server\" name=\"odd\" time=\"1.500\">\n    <failure type=\"odd\" \
                      message=\"a &lt;b&gt; | &quot;c&quot; &amp; *d*\"/>\n  </testcase>\n</testsuite>\n";
        assert!(xml.ends_with(wanted), "{xml}");
        assert!(xml.contains("tests=\"2\" failures=\"1\" skipped=\"0\""), "{xml}");
    }
}

//! Findings as JUnit XML.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::finding::{Finding, Level};
use super::sarif::FindingsReport;
use super::text::paragraph;

/// The result of a test case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseEnd {
    /// The test passed.
    Passed,
    /// The test failed with the finding.
    Failed,
    /// There was nothing to test, or the finding is no mistake.
    Skipped,
}

/// A finding as a test case.
#[derive(Debug, Clone, PartialEq)]
pub struct JunitCase {
    /// The name of the case.
    pub name: String,
    /// The duration in seconds; `None`: it is not known.
    pub seconds: Option<f64>,
    /// The result.
    pub end: CaseEnd,
    /// Further text about the case; empty if there is none.
    pub details: String,
}

impl JunitCase {
    /// Returns the case of a finding without further data: notes are skipped, and warnings fail.
    fn of(finding: &Finding) -> JunitCase {
        let end = match finding.level {
            Level::Ok => CaseEnd::Passed,
            Level::Note => CaseEnd::Skipped,
            Level::Warning | Level::Error => CaseEnd::Failed,
        };
        JunitCase { name: name_of(finding), seconds: None, end, details: paragraph(finding) }
    }
}

/// Returns the name of a finding's case: its kind, its subject, and the function and the file of the call
/// site. CI servers follow a case by its name from run to run, so no number of one run is in it.
fn name_of(finding: &Finding) -> String {
    let mut name = finding.kind.name.to_owned();
    let subject = without_numbers(&finding.subject);
    if !subject.is_empty() {
        name = format!("{name}: {subject}");
    }
    let frames = &finding.site.frames;
    let Some(frame) = frames.iter().find(|frame| frame.file.is_some()).or_else(|| frames.first()) else {
        return name;
    };
    if let Some(function) = &frame.function {
        // A site that is known by its call alone contains the ordinal of the call.
        let function = function.split(' ').next().unwrap_or_default();
        name = format!("{name}, in {function}");
    }
    match frame.file.as_deref().and_then(|file| file.rsplit('/').next()) {
        Some(file) => format!("{name} ({file})"),
        None => name,
    }
}

/// Removes words that are numbers or addresses from a text. The number of an exit code or of a signal is the
/// same in each run, and stays.
fn without_numbers(text: &str) -> String {
    let is_of_run = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != ':');
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit() || b",._".contains(&byte))
            && (digits.len() < word.len() || digits.bytes().any(|byte| byte.is_ascii_digit()));
        is_number || word.trim_matches(':').parse::<std::net::IpAddr>().is_ok()
    };
    let (mut before, mut words) = ("", Vec::new());
    for word in text.split_whitespace() {
        if ["code", "signal"].contains(&before) || !is_of_run(&word) {
            words.push(word);
        }
        before = word;
    }
    words.join(" ")
}

/// Numbers cases that have the same name, in their order, from the second one on.
fn make_names_unique(cases: &mut [(JunitCase, Option<&Finding>)]) {
    let mut seen: HashMap<String, u32> = HashMap::new();
    for (case, _) in cases {
        let count = seen.entry(case.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            case.name = format!("{} ({count})", case.name);
        }
    }
}

/// Returns a suite with a test case for each finding, or with one that passed if nothing was found.
pub(super) fn document(report: &FindingsReport<'_>) -> String {
    let mut cases: Vec<(JunitCase, Option<&Finding>)> =
        report.findings.iter().map(|finding| (JunitCase::of(finding), Some(finding))).collect();
    if cases.is_empty() {
        // Some servers take a suite without a case for a run that went wrong.
        let name = report.counted();
        cases.push((JunitCase { name, seconds: None, end: CaseEnd::Passed, details: String::new() }, None));
    }
    make_names_unique(&mut cases);
    suite(report, &cases)
}

/// Returns a suite with a test case for each finding; `case` makes the case of the n-th finding, from 0.
pub fn cases(report: &FindingsReport<'_>, case: impl Fn(usize, &Finding) -> JunitCase) -> String {
    let findings = report.findings.iter().enumerate();
    let cases: Vec<(JunitCase, Option<&Finding>)> =
        findings.map(|(number, finding)| (case(number, finding), Some(finding))).collect();
    suite(report, &cases)
}

fn suite(report: &FindingsReport<'_>, cases: &[(JunitCase, Option<&Finding>)]) -> String {
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

/// Escapes a text for an attribute. Characters that XML does not have are left out.
fn escaped(text: &str) -> String {
    content(text).replace('\n', "")
}

/// Escapes a text for an element. Characters that XML does not have are left out.
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
            "  <testcase classname=\"server\" name=\"cq-too-small: completion queue, in main (a b.c)\">\n",
            "    <skipped message=\"completion queue 0 has room for 1 completion\">cq-too-small: ",
            "    main (/src/a b.c:7)\n",
            "</skipped>\n  </testcase>\n",
            "name=\"odd: a | b\">\n    <failure type=\"odd\" message=\"a &lt;b&gt; | ",
            "&quot;c&quot; &amp; *d*\">odd: a &lt;b&gt; | ",
            "</failure>\n  </testcase>\n</testsuite>\n",
        ] {
            assert!(xml.contains(part), "{part}\n{xml}");
        }
        let xml = document(&FindingsReport { findings: &[], ..a_report(&found) });
        let case = "<testcase classname=\"server\" name=\"nothing was found\"/>\n";
        assert!(xml.contains("tests=\"1\" failures=\"0\"") && xml.contains(case), "{xml}");
    }

    #[test]
    fn names_are_those_of_the_next_run() {
        let named = |subject: &str| {
            let mut finding = all_found().remove(0);
            (finding.subject, finding.count) = (subject.to_owned(), subject.len() as u64);
            name_of(&finding)
        };
        let wanted = "cq-too-small: request of queue pair to, in main (a b.c)";
        assert_eq!(named("request 5 of queue pair 0x1a to 10.0.0.1:"), wanted);
        assert_eq!(
            named("request 1,024 of queue pair 0x77, to fe80::1"),
            "cq-too-small: request of queue pair to, in main (a b.c)"
        );
        assert_eq!(named("0x5f"), "cq-too-small, in main (a b.c)");
        assert_eq!(named("ibv_create_qp a0 of rxe0"), "cq-too-small: ibv_create_qp of rxe0, in main (a b.c)");
        // Several cases of one name are told apart by their order.
        let finding = all_found().remove(0);
        let twice = [finding.clone(), finding.clone(), finding];
        let xml = document(&a_report(&twice));
        for name in ["main (a b.c)\"", "main (a b.c) (2)\"", "main (a b.c) (3)\""] {
            assert_eq!(xml.matches(name).count(), 1, "{name}\n{xml}");
        }
    }

    #[test]
    fn a_command_makes_cases_of_its_own() {
        let found = all_found();
        let case = |_: usize, finding: &Finding| JunitCase {
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

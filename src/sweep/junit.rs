//! Findings as JUnit XML, which CI servers show.

use std::fmt::Write as _;

use super::options::SweepOptions;
use super::verdict::{Finding, Verdict};

/// The document: a test case for each run.
pub(super) fn document(findings: &[Finding], options: &SweepOptions) -> String {
    let failures = findings.iter().filter(|finding| finding.is_bad(options)).count();
    let unmade = findings.iter().filter(|finding| finding.verdict == Verdict::Unmade).count();
    let program = options.program.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuite name=\"pumice sweep {}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{unmade}\">",
        escaped(&program),
        findings.len()
    );
    for finding in findings {
        let name = match &finding.case {
            Some(case) => format!("{} {} {}", case.subject(), case.ordinal(), case.failure()),
            None => "without faults".to_owned(),
        };
        let _ = write!(
            xml,
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            escaped(&program),
            escaped(&name),
            finding.seconds
        );
        let what = [finding.ending(), finding.leftovers(), finding.said.clone().unwrap_or_default()];
        let what: Vec<&str> = what.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let what = escaped(&what.join("; "));
        let _ = match finding.verdict {
            verdict if finding.is_bad(options) => {
                writeln!(xml, ">\n    <failure type=\"{verdict}\" message=\"{what}\"/>\n  </testcase>")
            }
            Verdict::Unmade => {
                writeln!(xml, ">\n    <skipped message=\"it did not come to that\"/>\n  </testcase>")
            }
            _ => writeln!(xml, "/>"),
        };
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// Text of an attribute. Characters that XML does not have are left out.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| *c >= ' ') {
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
    use super::escaped;

    #[test]
    fn attributes_are_escaped() {
        assert_eq!(escaped("a<b> & \"c\"\u{1b}\n"), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}

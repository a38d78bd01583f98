//! Findings as Markdown, for comments and for summaries of CI runs.

use std::fmt::Write as _;

use super::call_site::CallSite;
use super::finding::Finding;
use super::report::FindingsReport;

/// Returns a table of all findings, and a section for each.
pub(super) fn document(report: &FindingsReport<'_>) -> String {
    let about = report.about;
    let mut out = format!("# pumice {}: {}\n", report.command, report.counted());
    if !about.program.is_empty() {
        let _ = write!(out, "\nProgram: {}", escaped(&about.program));
        if about.process > 0 {
            let _ = write!(out, ", process {}", about.process);
        }
        out.push_str(if about.is_whole { ".\n" } else { ", which had not ended.\n" });
    }
    if !report.findings.is_empty() {
        out.push_str("\n| Kind | Level | Subject | Site | Count |\n|---|---|---|---|---|\n");
    }
    for finding in report.findings {
        let site = finding.innermost().map(|frame| escaped(&frame.to_string())).unwrap_or_default();
        let (kind, level, count) = (finding.kind.name, finding.level.name(), finding.count);
        let _ = writeln!(out, "| {kind} | {level} | {} | {site} | {count} |", escaped(&finding.subject));
    }
    if about.suppressed > 0 {
        let _ = writeln!(out, "\n{} more are suppressed.", about.suppressed);
    }
    if about.left_out > 0 {
        let _ = writeln!(out, "\n{} more had no room.", about.left_out);
    }
    for finding in report.findings {
        section(&mut out, finding);
    }
    out
}

fn section(out: &mut String, finding: &Finding) {
    let Finding { kind, sentence, remedy, site, related, .. } = finding;
    let _ = writeln!(out, "\n## {}\n\n{}", kind.name, escaped(sentence));
    stack(out, site);
    for other in related {
        let _ = writeln!(out, "\n{}:", escaped(&other.what));
        stack(out, other);
    }
    let _ = writeln!(out, "\n**What:** {}", escaped(kind.what));
    if !kind.why.is_empty() {
        let _ = writeln!(out, "\n**Why it matters:** {}", escaped(kind.why));
    }
    if let Some(remedy) = remedy {
        let _ = writeln!(out, "\n**Remedy:** {}", escaped(remedy));
    }
}

/// Writes frames as a block of code.
fn stack(out: &mut String, site: &CallSite) {
    if !site.is_unknown() {
        out.push('\n');
    }
    for frame in &site.frames {
        let line: String = frame.to_string().chars().filter(|c| !c.is_control()).collect();
        let _ = writeln!(out, "    {line}");
    }
}

/// Escapes a text for a paragraph or a cell, so that no character has a meaning in Markdown. Line breaks
/// become spaces.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => out.extend(['\\', c]),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::report::ReportHeader;
    use super::super::tests::{TOO_SMALL, a_report, all_found};
    use super::*;

    #[test]
    fn a_report_has_a_table_and_a_section_for_each_finding() {
        let text = document(&a_report(&all_found()));
        let head = [
            "# pumice check: 2 findings\n\nProgram: server, process 7.\n\n| Kind | Level | Subject | Site | ",
            "Count |\n|---|---|---|---|---|\n| cq-too-small | warning | completion queue 0 | post ",
            "(server+0x40) | 3 |\n| odd | error | a \\| b |  | 1 |\n\n2 more are suppressed.\n\n## ",
            "cq-too-small\n\ncompletion queue 0 has room for 1 completion\n\n    post (server+0x40)\n",
            "    main (/src/a b.c:7)\n\nit was made here:\n\n    post",
        ];
        assert!(text.starts_with(&head.concat()), "{text}");
        let end = "\n\n## odd\n\na &lt;b&gt; \\| \"c\" &amp; \\*d\\*\n\n**What:** It is odd.\n";
        assert!(text.ends_with(end), "{text}");
        assert!(text.contains(&format!("**Remedy:** {}\n", TOO_SMALL.remedy)), "{text}");
    }

    #[test]
    fn a_report_without_findings_says_so() {
        let found = all_found();
        let about = ReportHeader::default();
        let report = FindingsReport { about: &about, findings: &[], ..a_report(&found) };
        assert_eq!(document(&report), "# pumice check: nothing was found\n");
    }
}

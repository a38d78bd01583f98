//! The formats of reports about findings, and two of them: JSON objects and annotations of GitHub Actions.

use std::fmt::Write as _;
use std::path::Path;

use super::fields::{Fields, Value};
use super::finding::{CallSite, Finding, Frame, Level};
use super::sarif::FindingsReport;
use super::{junit, sarif, text};

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReportFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object with all findings.
    Json,
    /// SARIF 2.1.0, which code hosts and editors show.
    Sarif,
    /// JUnit XML, which CI servers show.
    Junit,
    /// Markdown, for comments and summaries of CI runs.
    Markdown,
    /// Annotations, which GitHub Actions takes from what a step prints.
    Github,
}

impl ReportFormat {
    /// The names of all formats, as a sentence lists them.
    pub const NAMES: &str = "text, json, sarif, junit, markdown and github";

    /// Returns the format of a name; `None`: no format has this name.
    pub fn named(name: &str) -> Option<ReportFormat> {
        match name {
            "text" => Some(ReportFormat::Text),
            "json" => Some(ReportFormat::Json),
            "sarif" => Some(ReportFormat::Sarif),
            "junit" => Some(ReportFormat::Junit),
            "markdown" => Some(ReportFormat::Markdown),
            "github" => Some(ReportFormat::Github),
            _ => None,
        }
    }

    /// Returns the format of a file by its extension: a format's name, or `xml` for JUnit and `md` for
    /// Markdown; text for any other extension.
    pub fn of_file(file: &Path) -> ReportFormat {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("xml") => ReportFormat::Junit,
            Some("md") => ReportFormat::Markdown,
            extension => extension.and_then(ReportFormat::named).unwrap_or_default(),
        }
    }
}

/// Returns a line for each finding that is no mere "ok"; if there is none, one that says so.
fn github_document(report: &FindingsReport<'_>) -> String {
    let mut out = String::new();
    for finding in report.findings {
        github_line(&mut out, report.command, finding);
    }
    if out.is_empty() {
        let _ = writeln!(out, "pumice {}: {}", report.command, report.counted());
    }
    out
}

fn github_line(out: &mut String, command: &str, finding: &Finding) {
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

/// Returns a JSON object with the subject of a report and all its findings.
pub(super) fn document(report: &FindingsReport<'_>) -> String {
    let about = report.about;
    indented(
        &Fields::default()
            .with("findings", report.findings.iter().map(object).collect::<Vec<_>>())
            .with("left_out", about.left_out)
            .with("process", about.process)
            .with("program", about.program.as_str())
            .with("suppressed", about.suppressed)
            .with("whole", about.is_whole),
    )
}

/// Returns an object as a document by itself: one field on each line, and a line break at the end.
pub fn indented(object: &Fields) -> String {
    with_end(serde_json::to_string_pretty(object))
}

/// Returns an object on one line, with its line break.
pub fn line(object: &Fields) -> String {
    with_end(serde_json::to_string(object))
}

fn with_end(printed: serde_json::Result<String>) -> String {
    // Writing an object fails only for a field without a name, and fields have names.
    printed.unwrap_or_default() + "\n"
}

/// Returns a finding as an object of a report.
fn object(finding: &Finding) -> Fields {
    let Finding { kind, subject, sentence, remedy, site, related, count, .. } = finding;
    let related: Vec<Fields> = related.iter().map(related_site).collect();
    Fields::default()
        .with("count", *count)
        .with("family", kind.family.name())
        .with("kind", kind.name)
        .with("level", finding.level.name())
        .with("numbers", sentence.as_str())
        .with("object", subject.as_str())
        .with("related", related)
        .with("remedy", remedy.as_deref())
        .with("stack", stack(site))
        .with("what", kind.what)
        .with("why", kind.why)
}

fn related_site(site: &CallSite) -> Fields {
    Fields::default().with("stack", stack(site)).with("what", site.what.as_str())
}

fn stack(site: &CallSite) -> Value {
    let frame = |frame: &Frame| {
        Fields::default()
            .with("file", frame.file.as_deref())
            .with("function", frame.function.as_deref())
            .with("line", frame.line)
            .with("object", frame.object.as_str())
            .with("offset", frame.offset)
    };
    site.frames.iter().map(frame).collect::<Vec<_>>().into()
}

/// Returns the whole document; it ends with a line break.
pub fn print(report: &FindingsReport<'_>, format: ReportFormat) -> String {
    match format {
        ReportFormat::Text => text::document(report),
        ReportFormat::Json => document(report),
        ReportFormat::Sarif => sarif::document(report),
        ReportFormat::Junit => junit::document(report),
        ReportFormat::Markdown => sarif::markdown_document(report),
        ReportFormat::Github => github_document(report),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::{FindingFamily, FindingKind};
    use super::super::sarif::ReportHeader;
    use super::super::tests::{a_report, all_found};
    use super::*;

    #[test]
    fn a_format_has_a_name_and_files_have_a_format() {
        for name in ReportFormat::NAMES.replace(" and ", ", ").split(", ") {
            assert!(ReportFormat::named(name).is_some(), "{name}");
        }
        assert_eq!(ReportFormat::named("yaml"), None);
        for (file, format) in [
            ("a/report.sarif", ReportFormat::Sarif),
            ("report.%p.json", ReportFormat::Json),
            ("report.xml", ReportFormat::Junit),
            ("report.md", ReportFormat::Markdown),
            ("report.markdown", ReportFormat::Markdown),
            ("report", ReportFormat::Text),
            ("report.log", ReportFormat::Text),
        ] {
            assert_eq!(ReportFormat::of_file(Path::new(file)), format, "{file}");
        }
    }

    #[test]
    fn what_could_end_a_line_is_escaped() {
        static KIND: FindingKind = FindingKind::new("slow", FindingFamily::Slow, Level::Error, "It is slow.");
        let found = [Finding::new(&KIND, "a", "50 % more\n::error::x")];
        let about = ReportHeader::default();
        let report = FindingsReport { command: "x", about: &about, kinds: &[&KIND], findings: &found };
        assert_eq!(github_document(&report), "::error title=pumice x%3A slow::a: 50 %25 more%0A::error::x\n");
        let none = FindingsReport { findings: &[], ..report };
        assert_eq!(github_document(&none), "pumice x: nothing was found\n");
    }

    #[test]
    fn a_report_has_every_field_of_a_finding() {
        let text = document(&a_report(&all_found()));
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let one = &report["findings"][0];
        assert_eq!((&one["kind"], &one["count"]), (&json!("cq-too-small"), &json!(3)));
        assert_eq!(one["stack"][1]["line"], 7);
        assert_eq!(one["related"][0]["stack"][0]["offset"], 0x40);
        assert_eq!((&report["suppressed"], &report["process"]), (&json!(2), &json!(7)));
        // serde_json itself sorts the fields of all objects when it prints them.
        assert_eq!(text, format!("{report:#}\n"));
    }

    #[test]
    fn a_line_has_the_fields_that_it_is_given() {
        let finding = &all_found()[1];
        let shape = Fields::default().with("found", finding.sentence.as_str()).with("b", Value::Null);
        assert_eq!(line(&shape), "{\"found\":\"a <b> | \\\"c\\\" & *d*\",\"b\":null}\n");
        assert_eq!(indented(&Fields::default()), "{}\n");
    }
}

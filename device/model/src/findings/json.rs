//! Findings as JSON objects.

use super::call_site::{CallSite, Frame};
use super::fields::{Fields, Value};
use super::finding::Finding;
use super::report::FindingsReport;

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{a_report, all_found};
    use super::*;

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

//! Findings that are printed together: as Markdown and as SARIF 2.1.0.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::finding::{CallSite, Finding, FindingKind, Frame, Level};

/// The subject of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportHeader {
    /// The checked program; empty if there was none.
    pub program: String,
    /// The process number of the program; 0 if it has none.
    pub process: u32,
    /// True if the process has ended, so that there will be no more findings.
    pub is_whole: bool,
    /// The name of the signal by which the process has crashed; empty if it has not.
    pub ended_by: &'static str,
    /// Number of findings that were suppressed.
    pub suppressed: u64,
    /// Number of findings for which there was no room.
    pub left_out: u64,
}

/// Findings that are printed together.
#[derive(Debug, Clone, Copy)]
pub struct FindingsReport<'a> {
    /// The command that made the findings, as in "check".
    pub command: &'static str,
    /// The subject of the report.
    pub about: &'a ReportHeader,
    /// All kinds that the command may find.
    pub kinds: &'a [&'static FindingKind],
    /// The findings, the oldest first.
    pub findings: &'a [Finding],
}

impl FindingsReport<'_> {
    /// Returns the number of findings in words: "nothing was found", "1 finding" or "2 findings"; and other
    /// problems of the run.
    pub(super) fn counted(&self) -> String {
        let found = match self.findings.len() {
            0 => "nothing was found".to_owned(),
            1 => "1 finding".to_owned(),
            count => format!("{count} findings"),
        };
        match self.about.ended_by {
            "" => found,
            signal => format!("{found}, and {signal} ended the program"),
        }
    }
}

/// Returns a table of all findings, and a section for each.
pub(super) fn markdown_document(report: &FindingsReport<'_>) -> String {
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
    markdown_stack(out, site);
    for other in related {
        let _ = writeln!(out, "\n{}:", escaped(&other.what));
        markdown_stack(out, other);
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
fn markdown_stack(out: &mut String, site: &CallSite) {
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

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Returns a log with one run: its rules are the kinds.
pub(super) fn document(report: &FindingsReport<'_>) -> String {
    let about = report.about;
    let rules: Vec<Value> = report.kinds.iter().map(|kind| rule(kind)).collect();
    let results: Vec<Value> = report.findings.iter().map(|finding| result(finding, report.kinds)).collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": format!("pumice {}", report.command),
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "invocations": [{
                "executionSuccessful": true,
                "processId": about.process,
                "properties": { "program": about.program, "whole": about.is_whole },
            }],
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn rule(kind: &FindingKind) -> Value {
    json!({
        "id": kind.name,
        "shortDescription": { "text": kind.what },
        "fullDescription": { "text": or(kind.why, kind.what) },
        "help": { "text": or(kind.remedy, kind.what) },
        "defaultConfiguration": { "level": level(kind.level) },
        "properties": { "family": kind.family.name() },
    })
}

/// Returns `text`, or `other` if it is empty: the schema requires texts that are not empty.
fn or(text: &'static str, other: &'static str) -> &'static str {
    if text.is_empty() { other } else { text }
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::Ok => "none",
        Level::Note => "note",
        Level::Warning => "warning",
        Level::Error => "error",
    }
}

fn result(finding: &Finding, kinds: &[&FindingKind]) -> Value {
    let Finding { kind, sentence, remedy, site, related, .. } = finding;
    let mut properties = json!({ "object": finding.subject });
    if let (Value::Object(members), Some(remedy)) = (&mut properties, remedy) {
        // SARIF's own `fixes` are changes of files, which a remedy is not.
        members.insert("remedy".to_owned(), remedy.as_str().into());
    }
    let mut result = json!({
        "ruleId": kind.name,
        "level": level(finding.level),
        "message": { "text": sentence },
        "occurrenceCount": finding.count,
        "locations": location(site).into_iter().collect::<Vec<_>>(),
        "properties": properties,
    });
    let others: Vec<Value> = related.iter().filter_map(location).collect();
    if let Value::Object(members) = &mut result {
        if let Some(index) = kinds.iter().position(|known| known.name == kind.name) {
            members.insert("ruleIndex".to_owned(), index.into());
        }
        if !others.is_empty() {
            members.insert("relatedLocations".to_owned(), others.into());
        }
        if !site.is_unknown() {
            members.insert("stacks".to_owned(), json!([stack(&site.frames)]));
        }
    }
    result
}

/// Returns the location of the innermost frame that has a line, or else of the innermost frame.
fn location(site: &CallSite) -> Option<Value> {
    let frames = &site.frames;
    let frame = frames.iter().find(|frame| frame.line.is_some()).or_else(|| frames.first())?;
    let mut location = location_of(frame);
    if !site.what.is_empty() {
        location.insert("message".to_owned(), json!({ "text": site.what }));
    }
    Some(location.into())
}

fn location_of(frame: &Frame) -> Map<String, Value> {
    let mut location = Map::new();
    let file = frame.file.as_deref().unwrap_or(&frame.object);
    if !file.is_empty() {
        location.insert("physicalLocation".to_owned(), physical(frame, file));
    }
    if let Some(function) = &frame.function {
        location.insert("logicalLocations".to_owned(), json!([{ "name": function, "kind": "function" }]));
    }
    location
}

fn physical(frame: &Frame, file: &str) -> Value {
    let artifact = json!({ "uri": uri(file) });
    match frame.line {
        Some(line) if line > 0 => json!({ "artifactLocation": artifact, "region": { "startLine": line } }),
        _ => {
            let address = json!({ "relativeAddress": frame.offset, "kind": "instruction" });
            json!({ "artifactLocation": artifact, "address": address })
        }
    }
}

fn stack(frames: &[Frame]) -> Value {
    let frames: Vec<Value> = frames
        .iter()
        .map(|frame| json!({ "location": location_of(frame), "module": frame.object }))
        .collect();
    json!({ "frames": frames })
}

/// Returns a path as a URI reference.
fn uri(path: &str) -> String {
    let mut out = String::new();
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~+".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{KINDS, TOO_SMALL, a_report, all_found};
    use super::*;

    #[test]
    fn a_report_has_a_table_and_a_section_for_each_finding() {
        let text = markdown_document(&a_report(&all_found()));
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
        assert_eq!(markdown_document(&report), "# pumice check: nothing was found\n");
    }

    #[test]
    fn a_log_has_what_its_schema_requires() {
        let mut found = all_found();
        found[0].remedy = Some("make it larger".to_owned());
        let log: Value = serde_json::from_str(&document(&a_report(&found))).unwrap();
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["name"], "pumice check");
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), KINDS.len());
        assert!(rules.iter().all(|rule| rule["help"]["text"] != ""), "{rules:?}");
        let result = &run["results"][0];
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert_eq!((&result["level"], &run["results"][1]["level"]), (&json!("warning"), &json!("error")));
        // The finding and the remedy are separate texts.
        assert_eq!(result["message"]["text"], json!(found[0].sentence));
        assert_eq!(result["properties"]["remedy"], "make it larger");
        let physical = &result["locations"][0]["physicalLocation"];
        assert_eq!(physical["artifactLocation"]["uri"], "file:///src/a%20b.c");
        assert_eq!(physical["region"]["startLine"], 7);
        let stack = &result["stacks"][0]["frames"];
        assert_eq!(stack[0]["location"]["physicalLocation"]["address"]["relativeAddress"], 0x40);
        assert!(result["relatedLocations"][0]["message"]["text"].is_string());
        assert_eq!(run["results"][1]["locations"], json!([]));
    }

    #[test]
    fn a_site_that_is_a_text_is_no_file() {
        let site = CallSite::of_text("it was made here", "ibv_create_qp 1");
        let location = location(&site).unwrap();
        assert_eq!(location["logicalLocations"][0]["name"], "ibv_create_qp 1");
        assert!(location.get("physicalLocation").is_none(), "{location}");
    }
}

//! Findings as SARIF 2.1.0.

use serde_json::{Map, Value, json};

use super::call_site::{CallSite, Frame};
use super::finding::Finding;
use super::kind::{FindingKind, Level};
use super::report::FindingsReport;

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
    use super::super::tests::{KINDS, a_report, all_found};
    use super::*;

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

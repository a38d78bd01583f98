//! Reports as SARIF 2.1.0.

use serde_json::{Map, Value, json};

use super::super::kind::{Family, FindingKind, KINDS};
use super::{About, Entry, Frame};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// All findings of a process, as one run.
pub fn sarif(entries: &[Entry], about: &About) -> String {
    let rules: Vec<Value> = KINDS.iter().map(|kind| rule(kind)).collect();
    let results: Vec<Value> = entries.iter().map(result).collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "pumice check",
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
        "fullDescription": { "text": kind.why },
        "help": { "text": kind.remedy },
        "defaultConfiguration": { "level": level(kind) },
        "properties": { "family": kind.family.name() },
    })
}

fn level(kind: &FindingKind) -> &'static str {
    if kind.family == Family::Slow { "note" } else { "warning" }
}

fn result(entry: &Entry) -> Value {
    let Entry { finding, frames, related } = entry;
    let rule = KINDS.iter().position(|kind| kind.name == finding.kind.name);
    let mut result = json!({
        "ruleId": finding.kind.name,
        "ruleIndex": rule,
        "level": level(finding.kind),
        "message": { "text": format!("{} {}", finding.numbers, finding.kind.remedy) },
        "occurrenceCount": finding.count,
        "locations": location(frames, None).into_iter().collect::<Vec<_>>(),
        "properties": { "object": finding.object },
    });
    let others: Vec<Value> =
        related.iter().filter_map(|place| location(&place.frames, Some(&place.what))).collect();
    if let Value::Object(members) = &mut result {
        if !others.is_empty() {
            members.insert("relatedLocations".to_owned(), others.into());
        }
        if !frames.is_empty() {
            members.insert("stacks".to_owned(), json!([stack(frames)]));
        }
    }
    result
}

/// The innermost frame that has a line, or the innermost.
fn location(frames: &[Frame], message: Option<&str>) -> Option<Value> {
    let frame = frames.iter().find(|frame| frame.line.is_some()).or_else(|| frames.first())?;
    let mut location = place(frame);
    if let Some(message) = message {
        location.insert("message".to_owned(), json!({ "text": message }));
    }
    Some(location.into())
}

fn place(frame: &Frame) -> Map<String, Value> {
    let mut physical = Map::new();
    let file = frame.file.as_deref().unwrap_or(&frame.object);
    physical.insert("artifactLocation".to_owned(), json!({ "uri": uri(file) }));
    match frame.line {
        Some(line) if line > 0 => {
            physical.insert("region".to_owned(), json!({ "startLine": line }));
        }
        _ => {
            let address = json!({ "relativeAddress": frame.offset, "kind": "instruction" });
            physical.insert("address".to_owned(), address);
        }
    }
    let mut location = Map::new();
    location.insert("physicalLocation".to_owned(), physical.into());
    if let Some(function) = &frame.function {
        location.insert("logicalLocations".to_owned(), json!([{ "name": function, "kind": "function" }]));
    }
    location
}

fn stack(frames: &[Frame]) -> Value {
    let frames: Vec<Value> =
        frames.iter().map(|frame| json!({ "location": place(frame), "module": frame.object })).collect();
    json!({ "frames": frames })
}

/// A path as a reference of a URI.
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

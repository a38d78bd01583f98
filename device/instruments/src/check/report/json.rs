//! Reports as one object of JSON.

use serde_json::{Value, json};

use super::{About, Entry, Frame};

/// All findings of a process.
pub fn json(entries: &[Entry], about: &About) -> String {
    let findings: Vec<Value> = entries.iter().map(one).collect();
    let report = json!({
        "program": about.program,
        "process": about.process,
        "whole": about.is_whole,
        "suppressed": about.suppressed,
        "left_out": about.left_out,
        "findings": findings,
    });
    format!("{report:#}\n")
}

fn one(entry: &Entry) -> Value {
    let Entry { finding, frames, related } = entry;
    let related: Vec<Value> =
        related.iter().map(|place| json!({ "what": place.what, "stack": stack(&place.frames) })).collect();
    json!({
        "kind": finding.kind.name,
        "family": finding.kind.family.name(),
        "object": finding.object,
        "numbers": finding.numbers,
        "count": finding.count,
        "stack": stack(frames),
        "related": related,
        "what": finding.kind.what,
        "why": finding.kind.why,
        "remedy": finding.kind.remedy,
    })
}

fn stack(frames: &[Frame]) -> Vec<Value> {
    let frame = |frame: &Frame| {
        json!({
            "function": frame.function,
            "file": frame.file,
            "line": frame.line,
            "object": frame.object,
            "offset": frame.offset,
        })
    };
    frames.iter().map(frame).collect()
}

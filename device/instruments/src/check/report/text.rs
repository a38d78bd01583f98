//! Reports for people.

use std::fmt::Write as _;

use super::{About, Entry, Frame};

/// An entry: a line that says what it is, the places, why it matters, what to do.
pub fn entry(entry: &Entry) -> String {
    let Entry { finding, frames, related } = entry;
    let mut out = format!("{}: {}\n", finding.kind.name, finding.numbers);
    places(&mut out, frames);
    for other in related {
        let _ = writeln!(out, "  {}:", other.what);
        places(&mut out, &other.frames);
    }
    let _ = writeln!(out, "  what: {}", finding.kind.what);
    let _ = writeln!(out, "  why it matters: {}", finding.kind.why);
    let _ = write!(out, "  remedy: {}", finding.kind.remedy);
    out
}

/// The end of a report: how often each entry was found.
pub fn summary(entries: &[Entry], about: &About) -> String {
    let count = entries.len();
    let mut out = match count {
        0 => "check: nothing was found".to_owned(),
        1 => "check: 1 finding".to_owned(),
        _ => format!("check: {count} findings"),
    };
    for entry in entries {
        let place = entry.frames.first().or_else(|| entry.related.first()?.frames.first());
        let at = place.map(|frame| format!(" at {}", at(frame))).unwrap_or_default();
        let count = entry.finding.count;
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let _ = write!(out, "\n  {}: {}{at}, {times}", entry.finding.kind.name, entry.finding.object);
    }
    if about.suppressed > 0 {
        let _ = write!(out, "\n  {} more are suppressed", about.suppressed);
    }
    if about.left_out > 0 {
        let _ = write!(out, "\n  {} more had no room", about.left_out);
    }
    out
}

fn places(out: &mut String, frames: &[Frame]) {
    if frames.is_empty() {
        out.push_str("    (the call stack is not known)\n");
    }
    for frame in frames {
        let _ = writeln!(out, "    {}", at(frame));
    }
}

/// As in "main (server.c:42)".
fn at(frame: &Frame) -> String {
    let Frame { function, file, line, object, offset } = frame;
    let function = function.as_deref();
    let object = object.rsplit('/').next().unwrap_or_default();
    match (file, line) {
        (Some(file), Some(line)) => format!("{} ({file}:{line})", function.unwrap_or("?")),
        _ => match function {
            Some(function) => format!("{function} ({object}+{offset:#x})"),
            None => format!("{object}+{offset:#x}"),
        },
    }
}

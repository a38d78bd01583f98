//! Finds the entries for what a user typed, in the tables of all kinds, and writes explanations as a page.

use std::io::{self, Write};
use std::sync::LazyLock;

use pumice_device::check::KINDS;

use super::entry::{ExplainEntry, ExplainedKind};
use super::{async_event, cm_event, counter, errno, status};

/// Returns an entry for each kind of finding.
pub(super) fn checks() -> &'static [ExplainEntry] {
    static CHECKS: LazyLock<Vec<ExplainEntry>> = LazyLock::new(|| {
        let kinds = KINDS.iter();
        kinds
            .map(|kind| ExplainEntry {
                name: kind.name,
                number: None,
                meaning: kind.what,
                causes: std::slice::from_ref(&kind.why),
                look_at: std::slice::from_ref(&kind.remedy),
            })
            .collect()
    });
    &CHECKS
}

/// Returns all entries, kind by kind.
pub(super) fn tables() -> [(ExplainedKind, &'static [ExplainEntry]); 6] {
    [
        (ExplainedKind::Status, status::STATUSES),
        (ExplainedKind::Errno, errno::ERRNOS),
        (ExplainedKind::AsyncEvent, async_event::ASYNC_EVENTS),
        (ExplainedKind::CmEvent, cm_event::CM_EVENTS),
        (ExplainedKind::Counter, counter::COUNTERS),
        (ExplainedKind::Check, checks()),
    ]
}

/// Writes a page with all entries of these kinds.
pub(crate) fn write_page(title: &str, kinds: &[ExplainedKind], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# {title}\n\n`pumice explain NAME` prints the same.")?;
    for (kind, entries) in tables().into_iter().filter(|(kind, _)| kinds.contains(kind)) {
        if kinds.len() > 1 {
            writeln!(out, "\n## {}", kind.heading())?;
        }
        let depth = if kinds.len() > 1 { "###" } else { "##" };
        for entry in entries {
            write_entry(depth, kind, entry, out)?;
        }
    }
    Ok(())
}

fn write_entry(
    depth: &str,
    kind: ExplainedKind,
    entry: &ExplainEntry,
    out: &mut dyn Write,
) -> io::Result<()> {
    let number = entry.number.map(|number| format!(" ({number})")).unwrap_or_default();
    writeln!(out, "\n{depth} {}{number}\n\n{}", entry.full_name(kind), entry.meaning)?;
    for (heading, sentences) in kind.headings().into_iter().zip([entry.causes, entry.look_at]) {
        if !sentences.is_empty() {
            writeln!(out, "\n{heading}:\n")?;
        }
        for sentence in sentences {
            writeln!(out, "* {sentence}")?;
        }
    }
    Ok(())
}

/// Maximum number of names that are suggested for an unknown one.
const SUGGESTIONS: usize = 4;
/// Minimum similarity of a suggested name; 1 means equal.
const MIN_SIMILARITY: f64 = 0.6;

/// Returns all entries with this name or number, in the order of the tables. A name may have its prefix or
/// not, in upper or lower case; a number may be negative, as the kernel returns errnos.
pub(super) fn matches(given: &str) -> Vec<(ExplainedKind, &'static ExplainEntry)> {
    let name = given.trim();
    let number = name.parse::<i32>().ok();
    let is_it = |kind: ExplainedKind, entry: &ExplainEntry| match number {
        Some(number) if number < 0 => kind == ExplainedKind::Errno && entry.number == number.checked_neg(),
        Some(number) => entry.number == Some(number),
        None => entry.name.eq_ignore_ascii_case(name) || entry.full_name(kind).eq_ignore_ascii_case(name),
    };
    tables()
        .into_iter()
        .flat_map(|(kind, entries)| entries.iter().map(move |entry| (kind, entry)))
        .filter(|(kind, entry)| is_it(*kind, entry))
        .collect()
}

/// Returns the sentence for an unknown name, with similar names.
pub(super) fn unknown(given: &str) -> String {
    let near = near(given);
    if near.is_empty() {
        return format!("there is nothing to explain about {given:?}: `pumice explain` lists all names");
    }
    let names = near.join(", ");
    format!(
        "there is nothing to explain about {given:?}; did you mean {names}? `pumice explain` lists all names"
    )
}

/// Returns the names most similar to the given one, without their prefixes: first those that contain it, then
/// by their letters.
fn near(given: &str) -> Vec<&'static str> {
    let bare = without_prefix(&given.trim().to_ascii_uppercase()).to_owned();
    if bare.is_empty() || bare.parse::<i64>().is_ok() {
        return Vec::new();
    }
    let score = |name: &str| {
        let name = name.to_ascii_uppercase();
        let contained = bare.len() >= 3 && name.contains(&bare);
        let likeness = strsim::normalized_damerau_levenshtein(&bare, &name);
        if contained { 1.0 + likeness } else { likeness }
    };
    let mut scored: Vec<(f64, &'static str)> = tables()
        .into_iter()
        .flat_map(|(_, entries)| entries.iter().map(|entry| (score(entry.name), entry.name)))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    scored.sort_by(|left, right| right.0.total_cmp(&left.0));
    let mut names = Vec::new();
    for (_, name) in scored {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(SUGGESTIONS);
    names
}

fn without_prefix(name: &str) -> &str {
    let kinds = tables().map(|(kind, _)| kind.prefix());
    kinds
        .iter()
        .filter(|prefix| !prefix.is_empty())
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name)
}

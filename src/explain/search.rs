//! Finding what a user typed.

use super::entry::{Entry, EntryKind};
use super::tables::tables;

/// Names that are suggested for one that is unknown.
const SUGGESTIONS: usize = 4;
/// How alike two names must be to be suggested: 1 is the same.
const ALIKE: f64 = 0.6;

/// Everything that has this name or number, in the order of the tables. A name may have its prefix or not,
/// and be in capitals or not; a number may be negative, as calls of the kernel return errnos.
pub(super) fn matches(given: &str) -> Vec<(EntryKind, &'static Entry)> {
    let name = given.trim();
    let number = name.parse::<i32>().ok();
    let is_it = |kind: EntryKind, entry: &Entry| match number {
        Some(number) if number < 0 => kind == EntryKind::Errno && entry.number == number.checked_neg(),
        Some(number) => entry.number == Some(number),
        None => entry.name.eq_ignore_ascii_case(name) || entry.full_name(kind).eq_ignore_ascii_case(name),
    };
    tables()
        .into_iter()
        .flat_map(|(kind, entries)| entries.iter().map(move |entry| (kind, entry)))
        .filter(|(kind, entry)| is_it(*kind, entry))
        .collect()
}

/// The sentence for a name that is not known: with those that are like it.
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

/// The names most like the one given, without their prefixes: those that contain it, then by their letters.
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
        .filter(|(score, _)| *score >= ALIKE)
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

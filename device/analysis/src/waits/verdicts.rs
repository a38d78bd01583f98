//! Verdicts on the processes of a graph: a root, or a circle, that holds them up.

use pumice_model::inspect::{ProcessStatus, ProcessWait, WaitGraph, WaitVerdict, WaitsView};

use super::words;

/// Returns what holds up the process at a position of the list that the graph was made of, and its own wait.
pub(super) fn verdict_of<'a>(
    graph: &'a WaitGraph,
    now: &[ProcessStatus],
    process: usize,
) -> Option<(&'a ProcessWait, WaitVerdict)> {
    let path = follow(&graph.waits, process, &mut Vec::new(), &mut vec![false; now.len()])?;
    let first = path.waits.first().copied()?;
    Some((first, verdict_in_words(now, &path)))
}

/// A path from a process that waits.
struct WaitPath<'a> {
    waits: Vec<&'a ProcessWait>,
    /// Position at which its circle begins, if it ends in one.
    circle: Option<usize>,
    /// Process at its end that does not wait.
    last: Option<usize>,
}

/// Returns what holds the processes up, the surest first.
pub(super) fn verdicts(now: &[ProcessStatus], waits: &[ProcessWait]) -> Vec<WaitVerdict> {
    let mut found: Vec<WaitVerdict> = Vec::new();
    for start in 0..now.len() {
        let Some(path) = follow(waits, start, &mut Vec::new(), &mut vec![false; now.len()]) else { continue };
        let verdict = verdict_in_words(now, &path);
        let is_known = |other: &WaitVerdict| {
            let same_circle = other.is_circle && verdict.is_circle && {
                let mut sorted = [other.processes.clone(), verdict.processes.clone()];
                sorted.iter_mut().for_each(|processes| processes.sort_unstable());
                sorted[0] == sorted[1]
            };
            same_circle || other.sentence == verdict.sentence
        };
        if !found.iter().any(is_known) {
            found.push(verdict);
        }
    }
    // Of the paths to one root the longest contains the others.
    let mut kept: Vec<WaitVerdict> = Vec::new();
    for (index, one) in found.iter().enumerate() {
        let is_longest = found.iter().enumerate().all(|(other, verdict)| {
            other == index
                || one.is_circle
                || verdict.is_circle
                || verdict.processes.last() != one.processes.last()
                || (verdict.processes.len(), other) < (one.processes.len(), index)
        });
        if is_longest {
            kept.push(one.clone());
        }
    }
    kept.sort_by_key(|one| (!one.is_certain, !one.is_circle));
    kept
}

/// Follows the path from a process to what holds it up: to a root if there is one, otherwise to a circle.
fn follow<'a>(
    waits: &'a [ProcessWait],
    from: usize,
    path: &mut Vec<&'a ProcessWait>,
    seen: &mut [bool],
) -> Option<WaitPath<'a>> {
    let own = || waits.iter().filter(move |wait| wait.from == from);
    if own().next().is_none() {
        return (!path.is_empty()).then(|| WaitPath { waits: path.clone(), circle: None, last: Some(from) });
    }
    if let Some(root) = own().find(|wait| wait.why.is_root()) {
        let waits = path.iter().copied().chain([root]).collect();
        return Some(WaitPath { waits, circle: None, last: None });
    }
    if let Some(is_seen) = seen.get_mut(from) {
        *is_seen = true;
    }
    let mut best: Option<WaitPath<'a>> = None;
    for wait in own() {
        path.push(wait);
        let next = match wait.to {
            None => Some(WaitPath { waits: path.clone(), circle: None, last: None }),
            Some(to) => match path.iter().position(|before| before.from == to) {
                Some(begin) => Some(WaitPath { waits: path.clone(), circle: Some(begin), last: None }),
                None if seen.get(to).copied().unwrap_or(true) => None,
                None => follow(waits, to, path, seen),
            },
        };
        path.pop();
        let rank = |path: &WaitPath<'_>| match (path.circle, path.waits.last()) {
            (None, Some(last)) if last.why.is_root() => 0,
            (Some(_), _) => 1,
            _ => 2,
        };
        if let Some(next) = next
            && best.as_ref().is_none_or(|best| rank(&next) < rank(best))
        {
            best = Some(next);
        }
    }
    best
}

fn verdict_in_words(now: &[ProcessStatus], path: &WaitPath<'_>) -> WaitVerdict {
    let begin = path.circle.unwrap_or_default();
    let waits = path.waits.get(begin..).unwrap_or_default();
    let name = |process: usize| now.get(process).map(words::process).unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    if path.circle.is_some() {
        let names: Vec<String> = waits.iter().map(|wait| name(wait.from)).collect();
        parts.push(match names.as_slice() {
            [only] => format!("{only} waits for itself"),
            _ => format!("{} wait for each other", words::list(&names)),
        });
    }
    parts.extend(waits.iter().map(|wait| format!("{} {}", name(wait.from), wait.words)));
    let mut processes: Vec<usize> = waits.iter().map(|wait| wait.from).collect();
    if let Some(last) = path.last {
        processes.push(last);
        parts.push(now.get(last).map(words::at_rest).unwrap_or_default());
    } else if let Some(to) = waits.last().and_then(|wait| wait.to).filter(|_| path.circle.is_none()) {
        processes.push(to);
    }
    let is_closed = |process: &usize| {
        let objects = now.get(*process).and_then(|one| one.objects.as_ref());
        objects.is_some_and(|objects| {
            objects.listens.is_empty() && objects.waits.as_ref().is_some_and(WaitsView::is_closed)
        })
    };
    let is_circle = path.circle.is_some();
    let is_certain = match waits.last() {
        Some(last) if last.why.is_root() => !last.is_of_message || is_closed(&last.from),
        Some(_) if is_circle => processes.iter().all(is_closed),
        _ => false,
    };
    WaitVerdict { sentence: parts.join("; "), processes, is_circle, is_certain }
}

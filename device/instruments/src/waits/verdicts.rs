//! What holds the processes of a graph: a root, or a circle.

use pumice_events::inspect::{Graph, Standing, Verdict, Wait, WaitsView};

use super::words;

/// What holds the process at a position of the list that the graph was made of, and its own wait.
pub(super) fn verdict_of<'a>(
    graph: &'a Graph,
    now: &[Standing],
    process: usize,
) -> Option<(&'a Wait, Verdict)> {
    let way = follow(&graph.waits, process, &mut Vec::new(), &mut vec![false; now.len()])?;
    let first = way.waits.first().copied()?;
    Some((first, said(now, &way)))
}

/// A way from a process that waits.
struct Way<'a> {
    waits: Vec<&'a Wait>,
    /// Where its circle begins, if it ends in one.
    circle: Option<usize>,
    /// It ends with a process that does not wait.
    last: Option<usize>,
}

/// What holds them, the surest first.
pub(super) fn verdicts(now: &[Standing], waits: &[Wait]) -> Vec<Verdict> {
    let mut found: Vec<Verdict> = Vec::new();
    for start in 0..now.len() {
        let Some(way) = follow(waits, start, &mut Vec::new(), &mut vec![false; now.len()]) else { continue };
        let verdict = said(now, &way);
        let is_known = |other: &Verdict| {
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
    // Of the ways to one root the longest says all.
    let mut kept: Vec<Verdict> = Vec::new();
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

/// The way from a process to what holds it: to a root if there is one, else to a circle.
fn follow<'a>(waits: &'a [Wait], from: usize, way: &mut Vec<&'a Wait>, seen: &mut [bool]) -> Option<Way<'a>> {
    let own = || waits.iter().filter(move |wait| wait.from == from);
    if own().next().is_none() {
        return (!way.is_empty()).then(|| Way { waits: way.clone(), circle: None, last: Some(from) });
    }
    if let Some(root) = own().find(|wait| wait.why.is_root()) {
        let waits = way.iter().copied().chain([root]).collect();
        return Some(Way { waits, circle: None, last: None });
    }
    if let Some(is_seen) = seen.get_mut(from) {
        *is_seen = true;
    }
    let mut best: Option<Way<'a>> = None;
    for wait in own() {
        way.push(wait);
        let next = match wait.to {
            None => Some(Way { waits: way.clone(), circle: None, last: None }),
            Some(to) => match way.iter().position(|before| before.from == to) {
                Some(begin) => Some(Way { waits: way.clone(), circle: Some(begin), last: None }),
                None if seen.get(to).copied().unwrap_or(true) => None,
                None => follow(waits, to, way, seen),
            },
        };
        way.pop();
        let rank = |way: &Way<'_>| match (way.circle, way.waits.last()) {
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

fn said(now: &[Standing], way: &Way<'_>) -> Verdict {
    let begin = way.circle.unwrap_or_default();
    let waits = way.waits.get(begin..).unwrap_or_default();
    let name = |process: usize| now.get(process).map(words::process).unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    if way.circle.is_some() {
        let names: Vec<String> = waits.iter().map(|wait| name(wait.from)).collect();
        parts.push(match names.as_slice() {
            [only] => format!("{only} waits for itself"),
            _ => format!("{} wait for each other", words::list(&names)),
        });
    }
    parts.extend(waits.iter().map(|wait| format!("{} {}", name(wait.from), wait.words)));
    let mut processes: Vec<usize> = waits.iter().map(|wait| wait.from).collect();
    if let Some(last) = way.last {
        processes.push(last);
        parts.push(now.get(last).map(words::at_rest).unwrap_or_default());
    } else if let Some(to) = waits.last().and_then(|wait| wait.to).filter(|_| way.circle.is_none()) {
        processes.push(to);
    }
    let is_closed = |process: &usize| {
        let objects = now.get(*process).and_then(|one| one.objects.as_ref());
        objects.is_some_and(|objects| {
            objects.listens.is_empty() && objects.waits.as_ref().is_some_and(WaitsView::is_closed)
        })
    };
    let is_circle = way.circle.is_some();
    let is_certain = match waits.last() {
        Some(last) if last.why.is_root() => !last.is_of_message || is_closed(&last.from),
        Some(_) if is_circle => processes.iter().all(is_closed),
        _ => false,
    };
    Verdict { sentence: parts.join("; "), processes, is_circle, is_certain }
}

//! Other processes of the same user are asked about their objects.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pumice_transport::wire::ProcessIndex;

use super::asking::{Question, answers};
use super::orders::{self, MAX_BYTES};
use super::{ShareError, Sharer};
use crate::inspect::{self, Collected, Cursor, MAX_PAGES, Page};

/// What one process has said of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The process.
    pub sharer: Sharer,
    /// Its objects. None: it did not answer in time, because it is stopped, or exits, or is of a version that
    /// does not know the question.
    pub objects: Option<Collected>,
}

/// Asks all processes that share a UDP port of this network namespace about their objects. `folder` is that
/// of [`ShareConfig`](super::ShareConfig). A process with many objects is asked up to [`MAX_PAGES`] times.
/// Takes at most `patience` for each page and each of this user's folders.
///
/// # Errors
/// The registry cannot be opened or read; no socket is to be had.
pub fn inspect(port: u16, folder: Option<&Path>, patience: Duration) -> Result<Vec<Inspected>, ShareError> {
    let first = page(port, folder, patience, &|_| true, Cursor::BEGIN)?;
    let mut all = Vec::new();
    for (sharer, page) in first {
        let Some(page) = page else {
            all.push(Inspected { sharer, objects: None });
            continue;
        };
        let objects = rest(port, folder, patience, sharer, page)?;
        all.push(Inspected { sharer, objects: Some(objects) });
    }
    Ok(all)
}

/// Asks one process, the one with this index and number, about the first of its objects, as many as one
/// answer holds. None: it is not there, or did not answer within `patience`.
///
/// # Errors
/// As for [`inspect()`].
pub fn inspect_first(
    port: u16,
    folder: Option<&Path>,
    (process, pid): (ProcessIndex, u32),
    patience: Duration,
) -> Result<Option<Collected>, ShareError> {
    let is_it = |sharer: &Sharer| sharer.process == process && sharer.pid == pid;
    let answers = page(port, folder, patience, &is_it, Cursor::BEGIN)?;
    Ok(answers.into_iter().find_map(|(_, page)| page).map(|page| {
        let mut objects = Collected::default();
        objects.add(Cursor::BEGIN, page);
        objects
    }))
}

/// The first page of a process, and those behind it.
fn rest(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    sharer: Sharer,
    first: Page,
) -> Result<Collected, ShareError> {
    let mut objects = Collected::default();
    let mut next = objects.add(Cursor::BEGIN, first);
    for _ in 1..MAX_PAGES {
        let Some(cursor) = next else { break };
        let answers = page(port, folder, patience, &|other| *other == sharer, cursor)?;
        let Some(page) = answers.into_iter().find_map(|(_, page)| page) else { break };
        next = objects.add(cursor, page);
    }
    Ok(objects)
}

fn page(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    is_asked: &dyn Fn(&Sharer) -> bool,
    cursor: Cursor,
) -> Result<Vec<(Sharer, Option<Page>)>, ShareError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = now.as_nanos() as u64;
    let text = inspect::Question::Inspect { cursor }.encode();
    let question = Question {
        is_asked,
        ask: &|asker, registry, process| {
            // It is asked again if this is lost.
            let _ = asker.order(registry, process, number, &text);
        },
        read: &|bytes: &[u8]| -> Option<(ProcessIndex, Page)> {
            let (process, answer) = orders::answer_to(bytes, number)?;
            Some((process, Page::decode(answer)?))
        },
        max_bytes: MAX_BYTES,
    };
    answers(port, folder, patience, &question)
}

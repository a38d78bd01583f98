//! Other processes of the same user are asked about their objects.

use std::path::Path;
use std::time::Duration;

use pumice_events::inspect::{self, Collected, Cursor, MAX_PAGES, Page};
use pumice_ground::outside;
use pumice_transport::wire::ProcessIndex;

use super::asking::{Conversation, Heard, answers};
use super::member_index::MemberIndex;
use super::orders::{self, MAX_BYTES};
use super::registry::Registry;
use super::relay::Asker;
use super::{ShareError, Sharer};

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
/// of [`ShareConfig`](super::ShareConfig). The processes are asked together, and one with many objects up to
/// [`MAX_PAGES`] times. Takes as long as the slowest: at most `patience` for each of its pages, in each of
/// this user's folders.
///
/// # Errors
/// The registry cannot be opened or read; no socket is to be had.
pub fn inspect(port: u16, folder: Option<&Path>, patience: Duration) -> Result<Vec<Inspected>, ShareError> {
    inspect_all(port, folder, patience, false)
}

/// The same; each process looks what its threads wait for as well, and tells it when it is asked later.
///
/// # Errors
/// As for [`inspect()`].
pub fn inspect_waits(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
) -> Result<Vec<Inspected>, ShareError> {
    inspect_all(port, folder, patience, true)
}

fn inspect_all(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    looks: bool,
) -> Result<Vec<Inspected>, ShareError> {
    let all =
        answers(port, folder, patience, &Inspection { looks, ..Inspection::new(&|_| true, MAX_PAGES) })?;
    Ok(all.into_iter().map(|(sharer, known)| Inspected { sharer, objects: known.objects }).collect())
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
    let is_it = |sharer: &Sharer| sharer.process() == process && sharer.pid == pid;
    let all = answers(port, folder, patience, &Inspection::new(&is_it, 1))?;
    Ok(all.into_iter().find_map(|(_, known)| known.objects))
}

/// A look at the objects of processes, page by page.
struct Inspection<'a> {
    is_asked: &'a dyn Fn(&Sharer) -> bool,
    /// Pages of one process.
    max_pages: usize,
    /// The process looks what its threads wait for.
    looks: bool,
    /// The number of the questions for first pages. That for the next page is greater by one: an answer that
    /// comes twice is not taken for the next one.
    first_number: u64,
}

/// What one process has said.
#[derive(Debug, Default)]
struct Known {
    objects: Option<Collected>,
    /// Pages that have come.
    pages: usize,
    /// Where the next one begins; none: the first.
    next: Option<Cursor>,
}

impl Inspection<'_> {
    fn new(is_asked: &dyn Fn(&Sharer) -> bool, max_pages: usize) -> Inspection<'_> {
        let now = outside::since_1970();
        Inspection { is_asked, max_pages, looks: false, first_number: now.as_nanos() as u64 }
    }

    fn number(&self, known: &Known) -> u64 {
        self.first_number.wrapping_add(known.pages as u64)
    }
}

impl Known {
    /// The page that comes next.
    fn cursor(&self) -> Cursor {
        self.next.unwrap_or(Cursor::BEGIN)
    }

    /// Adds the page. Whether there is another one.
    fn add(&mut self, page: Page) -> bool {
        let cursor = self.cursor();
        self.next = self.objects.get_or_insert_default().add(cursor, page);
        self.pages += 1;
        self.next.is_some()
    }
}

impl Conversation for Inspection<'_> {
    type Known = Known;
    type Answer = (u64, Page);

    fn is_asked(&self, sharer: &Sharer) -> bool {
        (self.is_asked)(sharer)
    }

    fn ask(&self, asker: &Asker, registry: &Registry, member: MemberIndex, known: &Known) {
        let cursor = known.cursor();
        let waits = self.looks && cursor == Cursor::BEGIN;
        let text = inspect::Question::Inspect { cursor, waits }.encode();
        // It is asked again if this is lost.
        let _ = asker.order(registry, member, self.number(known), &text);
    }

    fn read(&self, bytes: &[u8]) -> Option<(MemberIndex, (u64, Page))> {
        let (member, number, page) = orders::answer_of(bytes)?;
        Some((member, (number, Page::decode(page)?)))
    }

    fn hear(
        &self,
        registry: &Registry,
        sharer: &Sharer,
        known: &mut Known,
        (number, page): (u64, Page),
    ) -> Heard {
        if number != self.number(known) {
            return Heard::Nothing;
        }
        let has_more = known.add(page) && known.pages < self.max_pages;
        // Another process that has the index by now has other objects.
        if has_more
            && registry.peek().is_none_or(|members| members.iter().any(|member| *sharer == member.into()))
        {
            Heard::More
        } else {
            Heard::All
        }
    }

    fn max_bytes(&self) -> usize {
        MAX_BYTES
    }
}

#[cfg(test)]
mod tests {
    use pumice_events::inspect::List;

    use super::*;

    #[test]
    fn pages_are_asked_one_after_the_other_and_an_answer_counts_once() {
        let inspection = Inspection::new(&|_| true, 2);
        let mut known = Known::default();
        let first = inspection.number(&known);
        assert_eq!(known.cursor(), Cursor::BEGIN);
        let next = Cursor { list: List::Cqs, from: 9 };
        assert!(known.add(Page { next: Some(next), ..Page::default() }));
        assert_eq!((known.cursor(), inspection.number(&known)), (next, first + 1));
        assert!(!known.add(Page::default()), "the last one");
    }
}

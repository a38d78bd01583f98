//! Questions to other processes of the same user about their objects.

use std::path::Path;
use std::time::Duration;

use pumice_model::inspect::{self, InspectCursor, InspectPage, InspectedObjects, MAX_PAGES};
use pumice_platform::outside;
use pumice_transport::wire::ProcessIndex;

use crate::members::error::SharingError;
use crate::members::member_index::MemberIndex;
use crate::queries::{QueryProtocol, ReplyProgress, collect_replies};
use crate::registry::Registry;
use crate::registry::port_processes::PortProcess;
use crate::relay::Querier;
use crate::relay::command_queue::{self, MAX_BYTES};

/// Answer of one process about its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectReply {
    /// Process that was asked.
    pub sharer: PortProcess,
    /// Objects of the process; `None` if it did not answer in time, because it is stopped, exits, or runs a
    /// version without this question.
    pub objects: Option<InspectedObjects>,
}

/// Asks all processes that share a UDP port of this network namespace about their objects. `folder` is that
/// of [`SharedPortConfig`](crate::shared_port::SharedPortConfig). The processes are asked together, and one
/// with many objects up to [`MAX_PAGES`] times. Takes as long as the slowest process: at most `patience` for
/// each of its pages, in each of this user's folders.
///
/// # Errors
/// Fails if the registry cannot be opened or read, or if no socket can be made.
pub fn inspect(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
) -> Result<Vec<InspectReply>, SharingError> {
    inspect_all(port, folder, patience, false)
}

/// Asks as [`inspect()`] does, and makes each process examine what its threads wait for. A process reports
/// that when it is asked later.
///
/// # Errors
/// Fails as [`inspect()`] does.
pub fn inspect_waits(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
) -> Result<Vec<InspectReply>, SharingError> {
    inspect_all(port, folder, patience, true)
}

fn inspect_all(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    examines_threads: bool,
) -> Result<Vec<InspectReply>, SharingError> {
    let all = collect_replies(
        port,
        folder,
        patience,
        &Inspection { examines_threads, ..Inspection::new(&|_| true, MAX_PAGES) },
    )?;
    Ok(all.into_iter().map(|(sharer, partial)| InspectReply { sharer, objects: partial.objects }).collect())
}

/// Asks one process, which has this index and number, for the first page of its objects: as many as one
/// answer holds. Returns `None` if the process does not exist or does not answer within `patience`.
///
/// # Errors
/// Fails as [`inspect()`] does.
pub fn inspect_first(
    port: u16,
    folder: Option<&Path>,
    (process, pid): (ProcessIndex, u32),
    patience: Duration,
) -> Result<Option<InspectedObjects>, SharingError> {
    let is_it = |sharer: &PortProcess| sharer.process() == process && sharer.pid == pid;
    let all = collect_replies(port, folder, patience, &Inspection::new(&is_it, 1))?;
    Ok(all.into_iter().find_map(|(_, partial)| partial.objects))
}

/// A query for the objects of processes, page by page.
struct Inspection<'a> {
    is_selected: &'a dyn Fn(&PortProcess) -> bool,
    /// Largest number of pages of one process.
    max_pages: usize,
    /// The process examines what its threads wait for.
    examines_threads: bool,
    /// Number of the questions for first pages. The question for each further page has a number greater by
    /// one, so that an answer that comes twice is not taken for the next one.
    first_number: u64,
}

/// Pages that one process has sent so far.
#[derive(Debug, Default)]
struct PartialReply {
    objects: Option<InspectedObjects>,
    /// Number of pages that have come.
    pages: usize,
    /// Position at which the next page begins; `None` for the first page.
    next: Option<InspectCursor>,
}

impl Inspection<'_> {
    fn new(is_selected: &dyn Fn(&PortProcess) -> bool, max_pages: usize) -> Inspection<'_> {
        let now = outside::since_1970();
        Inspection { is_selected, max_pages, examines_threads: false, first_number: now.as_nanos() as u64 }
    }

    fn number(&self, partial: &PartialReply) -> u64 {
        self.first_number.wrapping_add(partial.pages as u64)
    }
}

impl PartialReply {
    /// Returns the position of the page that comes next.
    fn cursor(&self) -> InspectCursor {
        self.next.unwrap_or(InspectCursor::BEGIN)
    }

    /// Adds a page, and reports whether there is another one.
    fn add(&mut self, page: InspectPage) -> bool {
        let cursor = self.cursor();
        self.next = self.objects.get_or_insert_default().add(cursor, page);
        self.pages += 1;
        self.next.is_some()
    }
}

impl QueryProtocol for Inspection<'_> {
    type PartialReply = PartialReply;
    type Answer = (u64, InspectPage);

    fn is_selected(&self, sharer: &PortProcess) -> bool {
        (self.is_selected)(sharer)
    }

    fn send_query(
        &self,
        querier: &Querier,
        registry: &Registry,
        member: MemberIndex,
        partial: &PartialReply,
    ) {
        let cursor = partial.cursor();
        let waits = self.examines_threads && cursor == InspectCursor::BEGIN;
        let text = inspect::InspectRequest::Inspect { cursor, waits }.encode();
        // The question is asked again if this datagram is lost.
        let _ = querier.order(registry, member, self.number(partial), &text);
    }

    fn read(&self, bytes: &[u8]) -> Option<(MemberIndex, (u64, InspectPage))> {
        let (member, number, page) = command_queue::answer_of(bytes)?;
        Some((member, (number, InspectPage::decode(page)?)))
    }

    fn add_reply(
        &self,
        registry: &Registry,
        sharer: &PortProcess,
        partial: &mut PartialReply,
        (number, page): (u64, InspectPage),
    ) -> ReplyProgress {
        if number != self.number(partial) {
            return ReplyProgress::Nothing;
        }
        let has_more = partial.add(page) && partial.pages < self.max_pages;
        // Another process that has the index by now has other objects.
        if has_more
            && registry.peek().is_none_or(|members| members.iter().any(|member| *sharer == member.into()))
        {
            ReplyProgress::More
        } else {
            ReplyProgress::All
        }
    }

    fn max_bytes(&self) -> usize {
        MAX_BYTES
    }
}

#[cfg(test)]
mod tests {
    use pumice_model::inspect::List;

    use super::*;

    #[test]
    fn pages_are_asked_one_after_the_other_and_an_answer_counts_once() {
        let inspection = Inspection::new(&|_| true, 2);
        let mut partial = PartialReply::default();
        let first = inspection.number(&partial);
        assert_eq!(partial.cursor(), InspectCursor::BEGIN);
        let next = InspectCursor { list: List::Cqs, from: 9 };
        assert!(partial.add(InspectPage { next: Some(next), ..InspectPage::default() }));
        assert_eq!((partial.cursor(), inspection.number(&partial)), (next, first + 1));
        assert!(!partial.add(InspectPage::default()), "the last one");
    }
}

//! Pages put together.

use pumice_faults::live::LiveRule;
use serde::{Deserialize, Serialize};

use super::{CqView, Cursor, ListenView, Page, QpView, SrqView, Totals, WaitsView};

/// Pages that are asked of one process for one look. A page has at most 60,000 bytes.
pub const MAX_PAGES: usize = 24;

/// What a process has said of its objects, over all pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// What fault plans call the process. From another process: it may hold any character.
    pub tag: String,
    /// The name of its device; empty if the process is of a version that does not say it. As `tag`.
    pub device: String,
    /// How many objects there are; the lists below may hold fewer.
    pub totals: Totals,
    /// Queue pairs, by number.
    pub qps: Vec<QpView>,
    /// Completion queues, by number.
    pub cqs: Vec<CqView>,
    /// Shared receive queues, by number.
    pub srqs: Vec<SrqView>,
    /// Rules of faults.
    pub rules: Vec<LiveRule>,
    /// What its threads wait for, if it knows.
    pub waits: Option<WaitsView>,
    /// Where it listens for connections, as far as there is room.
    pub listens: Vec<ListenView>,
}

impl Collected {
    /// Adds a page that was asked for at `at`. Returns where the next one begins: only forward, so that a
    /// process that says otherwise ends its own list.
    pub fn add(&mut self, at: Cursor, page: Page) -> Option<Cursor> {
        if at == Cursor::BEGIN {
            self.tag = page.tag;
            self.device = page.device;
            self.rules = page.rules;
            self.waits = page.waits;
            self.listens = page.listens;
        }
        self.totals = page.totals;
        self.qps.extend(page.qps);
        self.cqs.extend(page.cqs);
        self.srqs.extend(page.srqs);
        page.next.filter(|next| (next.list, next.from) > (at.list, at.from))
    }

    /// Queue pairs that are not in the list.
    pub fn qps_left_out(&self) -> u32 {
        left_out(self.totals.qps, self.qps.len())
    }

    /// Completion queues that are not in the list.
    pub fn cqs_left_out(&self) -> u32 {
        left_out(self.totals.cqs, self.cqs.len())
    }

    /// Shared receive queues that are not in the list.
    pub fn srqs_left_out(&self) -> u32 {
        left_out(self.totals.srqs, self.srqs.len())
    }

    /// Rules of faults that are not in the list.
    pub fn rules_left_out(&self) -> u32 {
        left_out(self.totals.rules, self.rules.len())
    }
}

fn left_out(total: u32, listed: usize) -> u32 {
    total.saturating_sub(u32::try_from(listed).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::List;
    use super::super::objects::tests::qp;
    use super::*;

    #[test]
    fn pages_follow_each_other_and_a_circle_ends() {
        let mut all = Collected::default();
        let totals = Totals { qps: 9, ..Totals::default() };
        let next = Cursor { list: List::Qps, from: 2 };
        let first =
            Page { tag: "a".to_owned(), totals, qps: vec![qp(1)], next: Some(next), ..Page::default() };
        assert_eq!(all.add(Cursor::BEGIN, first), Some(next));
        let second = Page { totals, qps: vec![qp(2)], next: Some(next), ..Page::default() };
        assert_eq!(all.add(next, second), None, "the same page again");
        assert_eq!((all.tag.as_str(), all.qps.len(), all.qps_left_out()), ("a", 2, 7));
        let back = Page { next: Some(Cursor::BEGIN), ..Page::default() };
        assert_eq!(all.add(Cursor { list: List::Cqs, from: 0 }, back), None);
    }
}

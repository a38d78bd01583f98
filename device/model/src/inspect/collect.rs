//! The pages of a process's answers, put together.

use crate::fates::live::RuleStatus;
use pumice_platform::ordinal::Ordinal;
use serde::{Deserialize, Serialize};

use super::{
    CqView, InspectCursor, InspectPage, ListenView, MrcProfileView, ObjectTotals, QpView, SrqView, WaitsView,
};

/// Most pages that are requested from one process at a time. A page has at most 60,000 bytes.
pub const MAX_PAGES: usize = 24;

/// The answer of a process about its objects, over all pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectedObjects {
    /// The tag of the process in fault plans. It comes from another process, and may contain any character.
    pub tag: String,
    /// The name of the device; empty if the process is of a version that does not send it. It may contain any
    /// character.
    pub device: String,
    /// The numbers of objects; the lists below may contain fewer.
    pub totals: ObjectTotals,
    /// Queue pairs, by number.
    pub qps: Vec<QpView>,
    /// Completion queues, by number.
    pub cqs: Vec<CqView>,
    /// Shared receive queues, by number.
    pub srqs: Vec<SrqView>,
    /// The rules of the fault plan.
    pub rules: Vec<RuleStatus>,
    /// The waits of the process's threads, if it knows them.
    pub waits: Option<WaitsView>,
    /// The process's listeners for connections, as far as there is room.
    pub listens: Vec<ListenView>,
    /// The profiles of MRC, as far as there is room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mrc_profiles: Vec<MrcProfileView>,
}

impl InspectedObjects {
    /// Adds a page that was requested for `at`. Returns where the next one begins: only forward, so that a
    /// process that answers otherwise ends its own list.
    pub fn add(&mut self, at: InspectCursor, page: InspectPage) -> Option<InspectCursor> {
        if at == InspectCursor::BEGIN {
            self.tag = page.tag;
            self.device = page.device;
            self.rules = page.rules;
            self.waits = page.waits;
            self.listens = page.listens;
            self.mrc_profiles = page.mrc_profiles;
        }
        self.totals = page.totals;
        self.qps.extend(page.qps);
        self.cqs.extend(page.cqs);
        self.srqs.extend(page.srqs);
        page.next.filter(|next| (next.list, next.from) > (at.list, at.from))
    }

    /// Returns the ordinal of a completion queue for people, as in "0".
    pub fn cq_number(&self, number: u32) -> String {
        let ordinal = self.cqs.iter().find(|cq| cq.number == number).and_then(|cq| cq.ordinal);
        ordinal.map_or_else(|| number.to_string(), |ordinal| Ordinal(ordinal).to_string())
    }

    /// Returns the name of a completion queue for people, as in "completion queue 0".
    pub fn cq_name(&self, number: u32) -> String {
        format!("completion queue {}", self.cq_number(number))
    }

    /// Returns the number of queue pairs that are not in the list.
    pub fn qps_left_out(&self) -> u32 {
        left_out(self.totals.qps, self.qps.len())
    }

    /// Returns the number of completion queues that are not in the list.
    pub fn cqs_left_out(&self) -> u32 {
        left_out(self.totals.cqs, self.cqs.len())
    }

    /// Returns the number of shared receive queues that are not in the list.
    pub fn srqs_left_out(&self) -> u32 {
        left_out(self.totals.srqs, self.srqs.len())
    }

    /// Returns the number of fault rules that are not in the list.
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
        let mut all = InspectedObjects::default();
        let totals = ObjectTotals { qps: 9, ..ObjectTotals::default() };
        let next = InspectCursor { list: List::Qps, from: 2 };
        let first = InspectPage {
            tag: "a".to_owned(),
            totals,
            qps: vec![qp(1)],
            next: Some(next),
            ..InspectPage::default()
        };
        assert_eq!(all.add(InspectCursor::BEGIN, first), Some(next));
        let second = InspectPage { totals, qps: vec![qp(2)], next: Some(next), ..InspectPage::default() };
        assert_eq!(all.add(next, second), None, "the same page again");
        assert_eq!((all.tag.as_str(), all.qps.len(), all.qps_left_out()), ("a", 2, 7));
        let back = InspectPage { next: Some(InspectCursor::BEGIN), ..InspectPage::default() };
        assert_eq!(all.add(InspectCursor { list: List::Cqs, from: 0 }, back), None);
    }
}

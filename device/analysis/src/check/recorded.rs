//! The list of findings, one entry for each kind and call site.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_platform::call_stack::Stack;

use super::kind::FindingKind;

/// Number of entries that are stored; further ones are counted.
pub const MAX_FINDINGS: usize = 256;
/// Number of innermost frames that make two call sites look alike.
const CALL_SITE_FRAMES: usize = 3;
/// Number of entries of call sites that look alike; a further one is counted with the last of these. A
/// library that posts from one function is called in many ways.
const MAX_CALL_PATHS: usize = 4;

/// Another call site that belongs to a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedCallSite {
    /// Description of what happened there, as in "completion queue 0 was made here".
    pub what: String,
    /// Call site.
    pub call_site: Stack,
}

/// A mistake of the program, as the checker records it: call stacks are return addresses.
#[derive(Debug, Clone)]
pub struct RecordedFinding {
    /// Kind of the mistake.
    pub kind: &'static FindingKind,
    /// Call site of the mistake.
    pub call_site: Stack,
    /// Object of the mistake, as in "queue pair 3 (number 0x12)".
    pub object: String,
    /// Sentence with the numbers of the first time.
    pub numbers: String,
    /// Other call sites that belong to it.
    pub related: Vec<RelatedCallSite>,
    /// Number of times that it was found.
    pub count: u64,
}

/// All findings of a process.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<RecordedFinding>,
    call_sites: HashMap<(&'static str, Stack), usize, FnvBuildHasher>,
    /// Indices of the entries of call sites whose innermost frames are these.
    call_paths: HashMap<(&'static str, Vec<u64>), Vec<usize>, FnvBuildHasher>,
    reported_count: usize,
    left_out: u64,
}

impl Findings {
    /// Adds a finding, or counts one that exists already.
    pub(super) fn add(&mut self, finding: RecordedFinding) {
        let related = || finding.related.first().map(|one| one.call_site.clone()).unwrap_or_default();
        let call_site = if finding.call_site.is_unknown() { related() } else { finding.call_site.clone() };
        let innermost = call_site.addresses().iter().take(CALL_SITE_FRAMES).copied().collect();
        let key = (finding.kind.name, call_site);
        let call_paths = self.call_paths.entry((finding.kind.name, innermost)).or_default();
        let latest = call_paths.last().copied().filter(|_| call_paths.len() >= MAX_CALL_PATHS);
        let index = self.call_sites.get(&key).copied().or(latest);
        if let Some(known) = index.and_then(|index| self.list.get_mut(index)) {
            known.count = known.count.saturating_add(1);
        } else if self.list.len() >= MAX_FINDINGS {
            self.left_out = self.left_out.saturating_add(1);
        } else {
            call_paths.push(self.list.len());
            self.call_sites.insert(key, self.list.len());
            self.list.push(finding);
        }
    }

    /// Counts the latest finding of a kind about an object once more, wherever it was.
    pub(super) fn again(&mut self, kind: &'static FindingKind, object: &str) {
        let latest =
            self.list.iter_mut().rev().find(|one| one.kind.name == kind.name && one.object == object);
        if let Some(latest) = latest {
            latest.count = latest.count.saturating_add(1);
        }
    }

    /// Returns the findings that were not returned yet.
    pub fn news(&mut self) -> Vec<RecordedFinding> {
        let news = self.list.get(self.reported_count..).unwrap_or_default().to_vec();
        self.reported_count = self.list.len();
        news
    }

    /// Returns all findings, oldest first.
    pub fn all(&self) -> &[RecordedFinding] {
        &self.list
    }

    /// Returns how many findings had no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::{CQ_TOO_SMALL, LOST_WAKEUP};
    use super::*;
    use pumice_platform::call_stack::Stacks;

    fn finding(kind: &'static FindingKind, call_site: Stack) -> RecordedFinding {
        let (object, numbers) = (String::from("queue pair 0"), String::new());
        RecordedFinding { kind, call_site, object, numbers, related: Vec::new(), count: 1 }
    }

    #[test]
    fn a_place_has_one_entry_for_each_kind() {
        let (mut findings, mut stacks) = (Findings::default(), Stacks::default());
        for address in [1, 2, 1, 1] {
            findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[address])));
        }
        findings.add(finding(&LOST_WAKEUP, stacks.keep(&[1])));
        let counts: Vec<u64> = findings.all().iter().map(|one| one.count).collect();
        assert_eq!(counts, [3, 1, 1]);
        assert_eq!((findings.news().len(), findings.news().len()), (3, 0));
        findings.again(&CQ_TOO_SMALL, "queue pair 0");
        assert_eq!(findings.all()[1].count, 2);
    }

    #[test]
    fn a_place_has_four_entries_for_the_ways_to_it() {
        let (mut findings, mut stacks) = (Findings::default(), Stacks::default());
        for way in [0, 1, 2, 3, 4, 5, 0] {
            findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[7, 8, 9, way])));
        }
        findings.add(finding(&LOST_WAKEUP, stacks.keep(&[7, 8, 9, 4])));
        findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[7, 8, 10, 4])));
        let counts: Vec<u64> = findings.all().iter().map(|one| one.count).collect();
        assert_eq!(counts, [2, 1, 1, 3, 1, 1]);
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let (mut findings, mut stacks) = (Findings::default(), Stacks::default());
        for address in 0..1000 {
            findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[address])));
        }
        assert_eq!((findings.all().len(), findings.left_out()), (MAX_FINDINGS, 744));
    }
}

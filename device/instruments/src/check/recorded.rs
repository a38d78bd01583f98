//! What was found, one entry for each kind and place.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_ground::call_stack::Stack;

use super::kind::FindingKind;

/// Entries that are kept; what comes beyond is counted.
pub const MAX_FINDINGS: usize = 256;
/// Innermost frames that make two places look alike.
const PLACE_FRAMES: usize = 3;
/// Entries of places that look alike; a further way to them is counted with the last of these. A library that
/// posts from one function is called in many ways.
const MAX_WAYS: usize = 4;

/// Another place that belongs to a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Related {
    /// What happened there, as in "completion queue 0 was made here".
    pub what: String,
    /// Where.
    pub place: Stack,
}

/// Something that a program does wrong, as the checker records it: call stacks are return addresses.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// What is wrong.
    pub kind: &'static FindingKind,
    /// Where the program did it.
    pub place: Stack,
    /// The object that it is about, as in "queue pair 3 (number 0x12)".
    pub object: String,
    /// A sentence with the numbers of the first time.
    pub numbers: String,
    /// Other places that belong to it.
    pub related: Vec<Related>,
    /// How often it was found.
    pub count: u64,
}

/// All findings of a process.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Recorded>,
    places: HashMap<(&'static str, Stack), usize, FnvBuildHasher>,
    /// The entries of the places whose innermost frames are these.
    ways: HashMap<(&'static str, Vec<u64>), Vec<usize>, FnvBuildHasher>,
    told: usize,
    left_out: u64,
}

impl Findings {
    /// Adds a finding, or counts one that is there.
    pub(super) fn add(&mut self, finding: Recorded) {
        let related = || finding.related.first().map(|one| one.place.clone()).unwrap_or_default();
        let place = if finding.place.is_unknown() { related() } else { finding.place.clone() };
        let innermost = place.addresses().iter().take(PLACE_FRAMES).copied().collect();
        let key = (finding.kind.name, place);
        let ways = self.ways.entry((finding.kind.name, innermost)).or_default();
        let latest = ways.last().copied().filter(|_| ways.len() >= MAX_WAYS);
        let index = self.places.get(&key).copied().or(latest);
        if let Some(known) = index.and_then(|index| self.list.get_mut(index)) {
            known.count = known.count.saturating_add(1);
        } else if self.list.len() >= MAX_FINDINGS {
            self.left_out = self.left_out.saturating_add(1);
        } else {
            ways.push(self.list.len());
            self.places.insert(key, self.list.len());
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

    /// Those that were not given out yet.
    pub fn news(&mut self) -> Vec<Recorded> {
        let news = self.list.get(self.told..).unwrap_or_default().to_vec();
        self.told = self.list.len();
        news
    }

    /// All of them, oldest first.
    pub fn all(&self) -> &[Recorded] {
        &self.list
    }

    /// How many had no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::{CQ_TOO_SMALL, LOST_WAKEUP};
    use super::*;
    use pumice_ground::call_stack::Stacks;

    fn finding(kind: &'static FindingKind, place: Stack) -> Recorded {
        let (object, numbers) = (String::from("queue pair 0"), String::new());
        Recorded { kind, place, object, numbers, related: Vec::new(), count: 1 }
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

//! Groups of runs that ended alike, during the search.

use std::collections::BTreeMap;

use super::super::outcome::RunOutcome;
use super::super::result::{MAX_LISTED_SEEDS, SearchFailure};

/// The groups of failed runs, by how they ended.
#[derive(Debug, Default)]
pub(super) struct FailureGroups {
    pub(super) groups: BTreeMap<String, RepeatedFailure>,
    /// Number of runs that failed.
    pub(super) failed: u64,
}

/// A group of runs that ended alike.
#[derive(Debug)]
pub(super) struct RepeatedFailure {
    /// Number of runs.
    count: u64,
    /// Seeds of the runs; the first ones found if there are very many.
    seeds: Vec<u64>,
    /// The smallest of these seeds, whose run is described below.
    pub(super) seed: u64,
    pub(super) first: RunOutcome,
}

impl FailureGroups {
    /// Adds a run that failed. Of all runs that ended alike, only the outcome of the one with the smallest
    /// seed is stored.
    pub(super) fn add(&mut self, seed: u64, outcome: RunOutcome) {
        self.failed += 1;
        match self.groups.get_mut(&outcome.end) {
            None => {
                let group = RepeatedFailure { count: 1, seeds: vec![seed], seed, first: outcome };
                self.groups.insert(group.first.end.clone(), group);
            }
            Some(group) => {
                group.count += 1;
                if seed < group.seed {
                    (group.seed, group.first) = (seed, outcome);
                }
                // The smallest seed is always among them.
                if group.seeds.len() >= MAX_LISTED_SEEDS {
                    group.seeds.sort_unstable();
                    group.seeds.pop();
                }
                group.seeds.push(seed);
            }
        }
    }
}

impl RepeatedFailure {
    /// Returns the failure for the result, before it has been run again.
    pub(super) fn failure(&self) -> SearchFailure {
        let mut seeds = self.seeds.clone();
        seeds.sort_unstable();
        SearchFailure {
            end: self.first.end.clone(),
            count: self.count,
            seeds,
            run_again: 0,
            the_same: 0,
            doubts: Some(self.first.said.clone()).filter(|_| !self.first.is_certified),
            needs: Vec::new(),
            plain_end: None,
            recording: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_least_seed_stands_for_all_that_ended_alike() {
        let mut groups = FailureGroups::default();
        for seed in (1..=MAX_LISTED_SEEDS as u64 + 10).rev() {
            let outcome = RunOutcome {
                end: if seed == 7 { "signal 6" } else { "exit code 1" }.to_owned(),
                is_failure: true,
                is_certified: seed != 1,
                said: format!("of {seed}"),
                digest: seed,
                virtual_ns: 0,
                departures: BTreeMap::new(),
                locations: BTreeMap::new(),
                met: BTreeSet::new(),
                events: 0,
            };
            groups.add(seed, outcome);
        }
        let group = &groups.groups["exit code 1"];
        let failure = group.failure();
        assert_eq!((group.seed, group.first.digest, failure.count), (1, 1, MAX_LISTED_SEEDS as u64 + 9));
        assert_eq!((failure.seeds.len(), failure.seeds[0]), (MAX_LISTED_SEEDS, 1));
        assert_eq!(failure.doubts.as_deref(), Some("of 1"));
        assert_eq!((groups.groups["signal 6"].seed, groups.failed), (7, MAX_LISTED_SEEDS as u64 + 10));
    }
}

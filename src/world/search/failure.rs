//! Runs that ended alike, while they are searched for.

use std::collections::BTreeMap;

use super::super::outcome::RunOutcome;
use super::super::result::{Failure, MOST_LISTED};

/// The ways in which runs failed, by how they ended.
#[derive(Debug, Default)]
pub(super) struct Ways {
    pub(super) ways: BTreeMap<String, RepeatedFailure>,
    /// Runs that failed.
    pub(super) failed: u64,
}

/// Runs that ended alike.
#[derive(Debug)]
pub(super) struct RepeatedFailure {
    /// How many they are.
    count: u64,
    /// Their seeds; of very many, the ones that came first.
    seeds: Vec<u64>,
    /// The least of these, and its run.
    pub(super) seed: u64,
    pub(super) first: RunOutcome,
}

impl Ways {
    /// A run failed. Of all runs that ended alike only that of the least seed is kept.
    pub(super) fn add(&mut self, seed: u64, outcome: RunOutcome) {
        self.failed += 1;
        match self.ways.get_mut(&outcome.end) {
            None => {
                let way = RepeatedFailure { count: 1, seeds: vec![seed], seed, first: outcome };
                self.ways.insert(way.first.end.clone(), way);
            }
            Some(way) => {
                way.count += 1;
                if seed < way.seed {
                    (way.seed, way.first) = (seed, outcome);
                }
                // The least seed is always among them.
                if way.seeds.len() >= MOST_LISTED {
                    way.seeds.sort_unstable();
                    way.seeds.pop();
                }
                way.seeds.push(seed);
            }
        }
    }
}

impl RepeatedFailure {
    /// What is told of it; it has not been run again yet.
    pub(super) fn failure(&self) -> Failure {
        let mut seeds = self.seeds.clone();
        seeds.sort_unstable();
        Failure {
            end: self.first.end.clone(),
            count: self.count,
            seeds,
            run_again: 0,
            the_same: 0,
            doubts: Some(self.first.said.clone()).filter(|_| !self.first.is_certified),
            needs: Vec::new(),
            recording: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_seed_stands_for_all_that_ended_alike() {
        let mut ways = Ways::default();
        for seed in (1..=MOST_LISTED as u64 + 10).rev() {
            let outcome = RunOutcome {
                end: if seed == 7 { "signal 6" } else { "exit code 1" }.to_owned(),
                is_failure: true,
                is_certified: seed != 1,
                said: format!("of {seed}"),
                digest: seed,
                departures: BTreeMap::new(),
            };
            ways.add(seed, outcome);
        }
        let way = &ways.ways["exit code 1"];
        let failure = way.failure();
        assert_eq!((way.seed, way.first.digest, failure.count), (1, 1, MOST_LISTED as u64 + 9));
        assert_eq!((failure.seeds.len(), failure.seeds[0]), (MOST_LISTED, 1));
        assert_eq!(failure.doubts.as_deref(), Some("of 1"));
        assert_eq!((ways.ways["signal 6"].seed, ways.failed), (7, MOST_LISTED as u64 + 10));
    }
}

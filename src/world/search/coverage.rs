//! The orders of two points that runs have met, and the seeds that are next: those whose kind of order meets
//! most new ones.

use std::collections::BTreeSet;

use super::super::seeds::{Seeds, Shard};
use super::runner::{PROFILES, profile_of};

/// Number of runs of each kind of order before they are compared.
const FIRST_RUNS: u64 = 2;
/// Every run of this number is of the kind that has had the fewest.
const EXPLORING: u64 = 3;

/// The orders of two points of two threads that runs have met.
#[derive(Debug, Default)]
pub(super) struct Coverage(BTreeSet<(u32, u32)>);

impl Coverage {
    /// Adds the orders of a run. Returns how many of them are new.
    fn add(&mut self, met: &BTreeSet<(u32, u32)>) -> u64 {
        met.iter().map(|pair| u64::from(self.0.insert(*pair))).sum()
    }

    /// Returns the number of orders.
    pub(super) fn orders(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the share of pairs of points that were met in both orders, in percent; 0 without a pair.
    pub(super) fn percent(&self) -> u64 {
        let both = self.0.iter().filter(|(one, other)| self.0.contains(&(*other, *one))).count() as u64;
        // A pair that was met in both orders is there twice.
        let pairs = self.orders() - both / 2;
        (100 * (both / 2)).checked_div(pairs).unwrap_or(0)
    }
}

/// The seeds that are left, by the kind of their order.
pub(super) struct SeedQueue {
    kinds: Vec<Kind>,
    taken: u64,
    pub(super) coverage: Coverage,
}

struct Kind {
    seeds: Box<dyn Iterator<Item = u64> + Send>,
    next: Option<u64>,
    runs: u64,
    /// Number of orders that the latest runs met first; older runs count less.
    found: u64,
}

impl SeedQueue {
    pub(super) fn new(shard: Shard, seeds: &Seeds) -> SeedQueue {
        let kind = |index: usize| {
            let mut seeds = Box::new(shard.of(seeds).filter(move |seed| profile_of(*seed) == index));
            let next = seeds.next();
            Kind { seeds, next, runs: 0, found: 0 }
        };
        SeedQueue { kinds: (0..PROFILES).map(kind).collect(), taken: 0, coverage: Coverage::default() }
    }

    /// Takes the next seed.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.taken += 1;
        let is_exploring = self.taken.is_multiple_of(EXPLORING);
        let left = self.kinds.iter_mut().filter(|kind| kind.next.is_some());
        let kind = left.min_by_key(|kind| match kind.runs {
            runs if runs < FIRST_RUNS || is_exploring => (0, runs, kind.next),
            _ => (1, u64::MAX - kind.found, kind.next),
        })?;
        kind.runs += 1;
        std::mem::replace(&mut kind.next, kind.seeds.next())
    }

    /// Notes the orders that the run of a seed has met.
    pub(super) fn ran(&mut self, seed: u64, met: &BTreeSet<(u32, u32)>) {
        let new = self.coverage.add(met);
        if let Some(kind) = self.kinds.get_mut(profile_of(seed)) {
            kind.found = kind.found / 2 + new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seeds_are_run_and_first_those_that_meet_new_orders() {
        let seeds = Seeds(1..=200);
        let mut queue = SeedQueue::new(Shard::UNSHARDED, &seeds);
        let mut taken = Vec::new();
        let mut number = 0;
        while let Some(seed) = queue.next() {
            taken.push(seed);
            // Orders of one kind alone are new.
            let new = if profile_of(seed) == 3 { number..number + 5 } else { 0..0 };
            queue.ran(seed, &new.map(|index| (index, 0)).collect());
            number += 5;
        }
        assert_eq!(taken[0], 1);
        let of_kind = |seeds: &[u64]| seeds.iter().filter(|seed| profile_of(**seed) == 3).count();
        assert!(of_kind(&taken[..40]) > 12, "{taken:?}");
        taken.sort_unstable();
        assert_eq!(taken, (1..=200).collect::<Vec<_>>());
    }

    #[test]
    fn a_pair_is_covered_if_it_was_met_in_both_orders() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.percent(), 0);
        assert_eq!(coverage.add(&[(1, 2), (3, 4), (4, 3), (5, 6), (7, 8)].into()), 5);
        assert_eq!((coverage.orders(), coverage.percent()), (5, 25));
        assert_eq!(coverage.add(&[(1, 2), (2, 1)].into()), 1);
        assert_eq!(coverage.percent(), 50);
    }
}

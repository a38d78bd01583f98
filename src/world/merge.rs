//! `pumice world merge`: merges the results of a search that several machines have shared.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use super::options::MergeWorldOptions;
use super::report;
use super::result::{MAX_LISTED_SEEDS, SearchFailure, SearchResult};
use super::seeds::Shard;
use crate::outcome::{CommandError, CommandResult, Outcome};

/// Runs the command.
pub(super) fn run(options: &MergeWorldOptions, out: &mut dyn Write) -> CommandResult {
    let mut merged = MergedResults::default();
    for file in &options.results {
        let result = SearchResult::open(file).map_err(CommandError::Usage)?;
        merged.add(file.clone(), result).map_err(CommandError::Usage)?;
    }
    let Some(result) = merged.end() else {
        return Err(CommandError::Usage("name the results of pumice world search".to_owned()));
    };
    report::write(&result, &options.report, "world merge", out)?;
    Ok(if result.is_good() { Outcome::Good } else { Outcome::Bad })
}

/// The results that have been merged so far.
#[derive(Default)]
struct MergedResults {
    /// The first result, with what has been added to it.
    all: Option<(PathBuf, SearchResult)>,
    /// File of each shard.
    found: BTreeMap<u64, PathBuf>,
    /// Failures by the way in which they ended.
    failures: BTreeMap<String, SearchFailure>,
}

impl MergedResults {
    /// Adds the result of a file.
    ///
    /// # Errors
    /// A sentence: it belongs to another search, or its shard has been added already.
    fn add(&mut self, file: PathBuf, mut result: SearchResult) -> Result<(), String> {
        let failures = std::mem::take(&mut result.failures);
        let shard = result.shard;
        if let Some((other_file, other)) = &self.all {
            let differs = [
                ("the seeds", other.seeds != result.seeds),
                ("the number of shards", other.shard.count != shard.count),
                ("the command", other.command != result.command),
            ];
            if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
                let (one, other) = (other_file.display(), file.display());
                return Err(format!("{one} and {other} are of two searches: they differ in {what}"));
            }
        }
        if let Some(other) = self.found.insert(shard.number, file.clone()) {
            let (one, other) = (other.display(), file.display());
            return Err(format!("{one} and {other} are both of shard {shard}: leave one of them out"));
        }
        for failure in failures {
            match self.failures.get_mut(&failure.end) {
                Some(known) => join(known, failure),
                None => drop(self.failures.insert(failure.end.clone(), failure)),
            }
        }
        match &mut self.all {
            None => self.all = Some((file, result)),
            Some((_, all)) => {
                all.runs = all.runs.saturating_add(result.runs);
                all.failed = all.failed.saturating_add(result.failed);
                all.seconds += result.seconds;
                all.end = all.end.max(result.end);
                all.orders = all.orders.max(result.orders);
                all.pairs_in_both_orders_percent =
                    all.pairs_in_both_orders_percent.max(result.pairs_in_both_orders_percent);
            }
        }
        Ok(())
    }

    /// Returns the merged result; `None` if there were none.
    fn end(self) -> Option<SearchResult> {
        let (_, mut all) = self.all?;
        let count = all.shard.count;
        all.missing = (1..=count).filter(|number| !self.found.contains_key(number)).collect();
        all.shard = Shard::UNSHARDED;
        all.failures = self.failures.into_values().collect();
        Some(all)
    }
}

/// Joins two groups of runs that ended alike. The details are those of the group with the smaller first seed.
fn join(known: &mut SearchFailure, mut other: SearchFailure) {
    if other.seeds.first() < known.seeds.first() {
        std::mem::swap(known, &mut other);
    }
    known.count = known.count.saturating_add(other.count);
    known.seeds.append(&mut other.seeds);
    known.seeds.sort_unstable();
    known.seeds.truncate(MAX_LISTED_SEEDS);
}

#[cfg(test)]
mod tests {
    use super::super::result::SearchEnd;
    use super::*;

    fn failure(end: &str, seeds: &[u64]) -> SearchFailure {
        SearchFailure {
            end: end.to_owned(),
            count: seeds.len() as u64,
            seeds: seeds.to_vec(),
            run_again: 3,
            the_same: 3,
            doubts: None,
            needs: vec![format!("of seed {}", seeds[0])],
            plain_end: None,
            recording: None,
        }
    }

    fn result(shard: &str, failures: Vec<SearchFailure>) -> SearchResult {
        let mut result =
            SearchResult::new(vec!["x".to_owned()], "1..9".parse().unwrap(), shard.parse().unwrap());
        result.failed = failures.iter().map(|failure| failure.count).sum();
        (result.runs, result.seconds, result.failures) = (3, 1.0, failures);
        result
    }

    fn merged(results: Vec<SearchResult>) -> Result<SearchResult, String> {
        let mut merged = MergedResults::default();
        for (number, result) in (1..).zip(results) {
            merged.add(PathBuf::from(format!("{number}.json")), result)?;
        }
        Ok(merged.end().unwrap())
    }

    #[test]
    fn failures_are_grouped_by_cause_over_all_shards() {
        let all = merged(vec![
            result("2/3", vec![failure("exit code 1", &[4, 7]), failure("signal 11", &[1])]),
            result("1/3", vec![failure("exit code 1", &[3])]),
            result("3/3", vec![]),
        ])
        .unwrap();
        assert_eq!((all.runs, all.failed, all.seconds, all.missing.len()), (9, 4, 3.0, 0));
        let [one, two] = &all.failures[..] else { panic!("{:?}", all.failures) };
        assert_eq!((one.count, &one.seeds[..], one.needs[0].as_str()), (3, &[3, 4, 7][..], "of seed 3"));
        assert_eq!((two.end.as_str(), two.count), ("signal 11", 1));
    }

    #[test]
    fn missing_shards_are_known_and_never_good() {
        let all = merged(vec![result("2/4", vec![])]).unwrap();
        assert_eq!((&all.missing[..], all.is_good()), (&[1, 3, 4][..], false));
        assert!(merged(vec![result("1/1", vec![])]).unwrap().is_good());
        let mut interrupted = result("1/1", vec![]);
        interrupted.end = SearchEnd::Interrupted;
        assert!(!merged(vec![interrupted]).unwrap().is_good());
    }

    #[test]
    fn results_of_two_searches_are_not_merged() {
        let refused = |other: SearchResult| merged(vec![result("1/3", vec![]), other]).unwrap_err();
        assert_eq!(
            refused(result("1/3", vec![])),
            "1.json and 2.json are both of shard 1/3: leave one of them out"
        );
        assert!(refused(result("2/4", vec![])).ends_with("they differ in the number of shards"));
        let mut other = result("2/3", vec![]);
        other.seeds = "1..10".parse().unwrap();
        assert!(refused(other.clone()).ends_with("they differ in the seeds"));
        other = result("2/3", vec![]);
        other.command.push("y".to_owned());
        assert!(refused(other).ends_with("they differ in the command"));
    }
}

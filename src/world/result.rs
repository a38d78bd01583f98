//! The result of a search as a file, which `pumice world merge` reads.
//!
//! The file is one JSON object, of version 1. Files are hostile: one that is too long or contradicts itself
//! is rejected.

use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::seeds::{Seeds, Shard};

/// Version of the format.
const VERSION: u32 = 1;
/// Maximum length of a result, in bytes.
const MAX_BYTES: u64 = 1 << 26;
/// Maximum number of seeds of a failure that are listed; all are counted.
pub(super) const MAX_LISTED_SEEDS: usize = 10_000;
/// Maximum duration of a search in seconds; a larger number is wrong.
const MAX_SECONDS: f64 = 1e9;
/// Maximum number of characters of a parser's message about a file.
const MAX_WORDS: usize = 200;

/// The reason why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SearchEnd {
    /// All its seeds were run.
    All,
    /// The time of `--time` was over.
    Time,
    /// A run failed, and `--first` was given.
    First,
    /// The search was interrupted.
    Interrupted,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchResult {
    version: u32,
    /// The program and its arguments, for the reader.
    pub(crate) command: Vec<String>,
    /// Seeds of all machines.
    pub(crate) seeds: Seeds,
    /// Part of the seeds that this machine ran.
    pub(crate) shard: Shard,
    /// Shards without a result, in a merged result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<u64>,
    pub(crate) end: SearchEnd,
    /// Number of seeds that were run.
    pub(crate) runs: u64,
    /// Duration in seconds; for several machines, the sum.
    pub(crate) seconds: f64,
    /// Number of runs that failed.
    pub(crate) failed: u64,
    /// Number of orders of two points that its runs met; for several machines, the largest.
    #[serde(default)]
    pub(crate) orders: u64,
    /// Share of the pairs of points that were met in both orders, in percent; for several machines, the
    /// largest.
    #[serde(default)]
    pub(crate) pairs_in_both_orders_percent: u64,
    /// Failures, grouped by the way in which the runs ended.
    pub(crate) failures: Vec<SearchFailure>,
}

/// A failure: a group of runs that ended alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFailure {
    /// End of the runs, by which they are grouped.
    pub(crate) end: String,
    /// Number of runs.
    pub(crate) count: u64,
    /// Seeds of the runs, in order; the first ones if there are very many.
    pub(crate) seeds: Vec<u64>,
    /// Number of runs that were to confirm the first failure.
    pub(crate) run_again: u32,
    /// Number of these in which it occurred again.
    pub(crate) the_same: u32,
    /// Doubts that the first run reports, if it is not certain to repeat.
    pub(crate) doubts: Option<String>,
    /// Departures from the plain order that the failure needs, in words.
    pub(crate) needs: Vec<String>,
    /// End of the run in the plain order, if that run fails in another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plain_end: Option<String>,
    /// Path of the recording of the reduced run, on the machine that made it.
    pub(crate) recording: Option<String>,
}

impl SearchResult {
    /// Returns the empty result of a search.
    pub(crate) fn new(command: Vec<String>, seeds: Seeds, shard: Shard) -> SearchResult {
        SearchResult {
            version: VERSION,
            command,
            seeds,
            shard,
            missing: Vec::new(),
            end: SearchEnd::All,
            runs: 0,
            seconds: 0.0,
            failed: 0,
            orders: 0,
            pairs_in_both_orders_percent: 0,
            failures: Vec::new(),
        }
    }

    /// Reports whether all seeds were run, and none failed or is missing.
    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0 && self.missing.is_empty() && self.end != SearchEnd::Interrupted
    }

    /// Returns the number of seeds that were to be run.
    pub(crate) fn wanted(&self) -> u64 {
        self.shard.count_of(&self.seeds)
    }

    /// Returns the result as a document.
    pub(crate) fn json(&self) -> String {
        // Serialization could fail only for maps without string keys, and there are none.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or is no result of a search.
    pub(crate) fn open(path: &Path) -> Result<SearchResult, String> {
        let name = path.display();
        let failed = |error: std::io::Error| format!("{name} cannot be read: {error}");
        let file = std::fs::File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(format!("{name} is no file: name the results of pumice world search"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        SearchResult::parse(&bytes)
            .map_err(|why| format!("{name} is no result of pumice world search: {why}"))
    }

    /// Parses a document.
    ///
    /// # Errors
    /// The reason, in a few words.
    pub(crate) fn parse(bytes: &[u8]) -> Result<SearchResult, String> {
        /// The field that a document of any version has.
        #[derive(Deserialize)]
        struct AnyVersion {
            version: u32,
        }
        if bytes.len() as u64 > MAX_BYTES {
            return Err("it is longer than 64 MiB".to_owned());
        }
        // The message may quote the file, which is hostile.
        let words = |error: serde_json::Error| -> String {
            error.to_string().chars().take(MAX_WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        let AnyVersion { version } = serde_json::from_slice(bytes).map_err(words)?;
        if version != VERSION {
            return Err(format!("it is of version {version}, and this pumice reads version {VERSION}"));
        }
        let result: SearchResult = serde_json::from_slice(bytes).map_err(words)?;
        result.check()?;
        Ok(result)
    }

    /// Checks that its numbers are consistent.
    fn check(&self) -> Result<(), String> {
        let wanted = self.wanted();
        if self.runs > wanted {
            return Err(format!("it ran {} seeds of {wanted}", self.runs));
        }
        if !self.missing.is_empty() {
            return Err("it is merged of results of which some are missing".to_owned());
        }
        if !(0.0..=MAX_SECONDS).contains(&self.seconds) {
            return Err(format!("it took {} seconds", self.seconds));
        }
        let mut failed: u64 = 0;
        for failure in &self.failures {
            let SearchFailure { end, count, seeds, run_again, the_same, .. } = failure;
            let is_own = |seed: &u64| self.seeds.0.contains(seed) && self.shard.has(*seed);
            let is_in_order = seeds.is_sorted_by(|one, next| one < next);
            if seeds.is_empty() || !is_in_order || !seeds.iter().all(is_own) {
                return Err(format!("the seeds of {end:?} are not such of shard {} in order", self.shard));
            }
            let listed = seeds.len() as u64;
            if *count < listed || (*count > listed && seeds.len() < MAX_LISTED_SEEDS) || the_same > run_again
            {
                return Err(format!("the numbers of {end:?} do not fit each other"));
            }
            failed = failed.saturating_add(*count);
        }
        let mut ends: Vec<&str> = self.failures.iter().map(|failure| failure.end.as_str()).collect();
        ends.sort_unstable();
        if !ends.is_sorted_by(|one, next| one < next) {
            return Err("one way to fail is there twice".to_owned());
        }
        if failed != self.failed || failed > self.runs {
            return Err(format!("{} of {} runs failed, and {failed} are listed", self.failed, self.runs));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> serde_json::Value {
        serde_json::json!({
            "version": 1, "command": ["./my_test"], "seeds": "1..10", "shard": "2/3", "end": "all",
            "runs": 4, "seconds": 0.5, "failed": 2, "orders": 9, "pairs_in_both_orders_percent": 40,
            "failures": [{
                "end": "exit code 1", "count": 2, "seeds": [4, 7], "run_again": 3, "the_same": 3,
                "doubts": null, "needs": ["p1.t2 rested 5 us after read"], "recording": "a/seed-4.world",
            }],
        })
    }

    fn refused(bytes: &[u8], why: &str) {
        let refusal_text = SearchResult::parse(bytes).unwrap_err();
        assert!(refusal_text.contains(why) && refusal_text.lines().count() == 1, "{why}: {refusal_text}");
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let result = SearchResult::parse(good().to_string().as_bytes()).unwrap();
        assert_eq!(SearchResult::parse(result.json().as_bytes()).unwrap(), result);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&result.json()).unwrap(), good());
        assert_eq!((result.wanted(), result.is_good()), (4, false));
    }

    #[test]
    fn hostile_results_are_refused_by_a_sentence() {
        let whole = good().to_string();
        for end in 0..whole.len() {
            assert!(SearchResult::parse(&whole.as_bytes()[..end]).is_err(), "cut off after {end} bytes");
        }
        refused(b"", "EOF");
        refused(b"{\"version\": 1, \"command\": [\"\xff\"]}", "unicode");
        refused(b"\xff\xfe", "expected value");
        refused("[".repeat(100_000).as_bytes(), "invalid type: sequence");
        refused(format!("{{\"x\": {}", "[".repeat(100_000)).as_bytes(), "EOF");
        refused(&vec![b' '; MAX_BYTES as usize + 1], "longer than 64 MiB");
        let cases: [(&str, serde_json::Value, &str); 12] = [
            ("/version", 2.into(), "it is of version 2, and this pumice reads version 1"),
            ("/version", (-1).into(), "invalid value"),
            ("/seeds", "1..99999999999999".into(), "more seeds than a search takes"),
            ("/shard", "2/18446744073709551615".into(), "100000 at most"),
            ("/shard", "0/3".into(), "0/3 is not that"),
            ("/runs", u64::MAX.into(), "it ran 18446744073709551615 seeds of 4"),
            ("/seconds", 1e300.into(), "seconds"),
            ("/failed", 3.into(), "3 of 4 runs failed, and 2 are listed"),
            ("/failures/0/count", u64::MAX.into(), "do not fit each other"),
            ("/failures/0/seeds", serde_json::json!([7, 4]), "in order"),
            ("/failures/0/seeds", serde_json::json!([4, 5]), "not such of shard 2/3"),
            ("/failures/0/the_same", 4.into(), "do not fit each other"),
        ];
        for (pointer, value, why) in cases {
            let mut result = good();
            *result.pointer_mut(pointer).unwrap() = value;
            refused(result.to_string().as_bytes(), why);
        }
        let mut twice = good();
        twice["failures"] = serde_json::json!([twice["failures"][0], twice["failures"][0]]);
        refused(twice.to_string().as_bytes(), "one way to fail is there twice");
        let mut unknown = good();
        unknown["more\n"] = 1.into();
        refused(unknown.to_string().as_bytes(), "unknown field `more `");
    }

    #[test]
    fn any_bytes_are_a_result_or_refused() {
        let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"));
        super::super::fuzz_replay::replay(fuzz, "world_result", 50_000, super::super::fuzzed::survive);
    }
}

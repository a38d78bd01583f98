//! The seeds that a search runs.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum number of seeds of one search.
const MAX_SEEDS: u64 = 1_000_000_000;
/// Maximum number of machines that share the seeds.
const MAX_SHARDS: u64 = 100_000;

/// The seeds of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Seeds(pub(crate) RangeInclusive<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let parse =
            |part: &str| part.parse::<u64>().map_err(|_| format!("{part:?} is no whole number from 0"));
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (parse(first)?, parse(last.strip_prefix('=').unwrap_or(last))?),
            None => (parse(text)?, parse(text)?),
        };
        if last < first {
            return Err(format!(
                "give a first seed, two dots and a last seed that is no less, as in 1..500, not {text}"
            ));
        }
        if last - first >= MAX_SEEDS {
            return Err(format!("{text} are more seeds than a search takes: give {MAX_SEEDS} at most"));
        }
        Ok(Seeds(first..=last))
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.start(), self.0.end())
    }
}

impl TryFrom<String> for Seeds {
    type Error = String;

    fn try_from(text: String) -> Result<Seeds, String> {
        text.parse()
    }
}

impl From<Seeds> for String {
    fn from(seeds: Seeds) -> String {
        seeds.to_string()
    }
}

/// The part of the seeds that one machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Shard {
    /// Number of the part, from 1.
    pub(crate) number: u64,
    pub(crate) count: u64,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parsed = text
            .split_once('/')
            .and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        match parsed {
            Some((number, count)) if (1..=count).contains(&number) && count <= MAX_SHARDS => {
                Ok(Shard { number, count })
            }
            Some((number, count)) if (1..=count).contains(&number) => {
                Err(format!("{count} machines are more than share a search: give {MAX_SHARDS} at most"))
            }
            _ => Err(format!(
                "give the number of this machine and of all machines, as in 2/4; {text} is not that"
            )),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

impl Shard {
    /// The shard with all seeds, on one machine.
    pub(crate) const UNSHARDED: Shard = Shard { number: 1, count: 1 };

    /// Reports whether the shard has all seeds.
    pub(crate) fn is_whole(self) -> bool {
        self.count == 1
    }

    /// Reports whether a seed belongs to this part.
    pub(crate) const fn has(self, seed: u64) -> bool {
        seed % self.count == self.number - 1
    }

    /// Returns the seeds of this part, in order: every `count`-th one.
    pub(crate) fn of(self, seeds: &Seeds) -> impl Iterator<Item = u64> + use<> {
        let (first, last) = (*seeds.0.start(), *seeds.0.end());
        let step = usize::try_from(self.count).unwrap_or(usize::MAX);
        let to_first = (self.number - 1 + self.count - first % self.count) % self.count;
        // Beyond the last number there is no seed of this part.
        let begin = first.checked_add(to_first).filter(|begin| *begin <= last);
        begin.into_iter().flat_map(move |begin| (begin..=last).step_by(step))
    }

    /// Returns the number of these seeds.
    pub(crate) fn count_of(self, seeds: &Seeds) -> u64 {
        self.of(seeds).next().map_or(0, |first| (*seeds.0.end() - first) / self.count + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!("1..500".parse(), Ok(Seeds(1..=500)));
        assert_eq!("7".parse(), Ok(Seeds(7..=7)));
        for bad in ["", "5..1", "a..b", "-1", "1..", "0..99999999999", "0..18446744073709551616", "1..\u{0}"]
        {
            assert!(bad.parse::<Seeds>().is_err(), "{bad}");
        }
        assert_eq!("0..99999999999".parse::<Seeds>().unwrap_err().lines().count(), 1);
    }

    #[test]
    fn shards_share_all_seeds() {
        let shards: Vec<Shard> = (1..=3).map(|number| format!("{number}/3").parse().unwrap()).collect();
        for (first, last) in [(0, 20), (1, 1), (5, 6), (u64::MAX - 3, u64::MAX)] {
            let seeds = Seeds(first..=last);
            let mut all: Vec<u64> = shards.iter().flat_map(|shard| shard.of(&seeds)).collect();
            all.sort_unstable();
            assert_eq!(all, (first..=last).collect::<Vec<_>>());
            for shard in &shards {
                assert_eq!(shard.count_of(&seeds), shard.of(&seeds).count() as u64);
                assert!(shard.of(&seeds).all(|seed| shard.has(seed)));
            }
        }
        assert_eq!(Shard::UNSHARDED.count_of(&Seeds(1..=1_000_000_000)), 1_000_000_000);
        for bad in ["0/3", "4/3", "1", "1/0", "a/b", "1/2/3", "", "/", "1/18446744073709551615", "-1/2"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
        assert_eq!(shards[1].to_string(), "2/3");
    }
}

//! Which seeds a search runs.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Seeds that one search may run.
const MOST_SEEDS: u64 = 1_000_000_000;

/// The seeds of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        if last < first || last - first >= MOST_SEEDS {
            return Err(format!(
                "give a first seed, two dots and a last seed that is no less, as in 1..500, not {text}"
            ));
        }
        Ok(Seeds(first..=last))
    }
}

/// One machine's part of the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shard {
    /// From 1.
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
            Some((number, count)) if (1..=count).contains(&number) => Ok(Shard { number, count }),
            _ => Err(format!(
                "give the number of this machine and of all machines, as in 2/4; {text} is not that"
            )),
        }
    }
}

impl Shard {
    /// Whether a seed is of this part.
    pub(crate) const fn has(self, seed: u64) -> bool {
        seed % self.count == self.number - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!("1..500".parse(), Ok(Seeds(1..=500)));
        assert_eq!("7".parse(), Ok(Seeds(7..=7)));
        for bad in ["", "5..1", "a..b", "-1", "1..", "0..99999999999"] {
            assert!(bad.parse::<Seeds>().is_err(), "{bad}");
        }
    }

    #[test]
    fn shards_share_all_seeds() {
        let shards: Vec<Shard> = (1..=3).map(|number| format!("{number}/3").parse().unwrap()).collect();
        for seed in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.has(seed)).count(), 1);
        }
        for bad in ["0/3", "4/3", "1", "1/0", "a/b"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}

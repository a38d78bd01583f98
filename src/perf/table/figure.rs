//! Figures of a row, what they are compared with, and goals.

use std::collections::BTreeMap;

use pumice_perf::Spread;

/// Something that is measured in each round of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// What the row is about; of times the median of a round.
    Value,
    /// The time that 99 % of a round did not exceed.
    P99,
    PerSecond,
    CacheLines,
    Memcpy,
    Futex,
    PlainUdp,
    Tcp,
    /// The p99 of the yardstick.
    YardstickP99,
    OneQueuePair,
    /// Without what the row is about.
    Without,
    UcxMemory,
    UcxTcp,
}

impl Figure {
    /// Its name in tables and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Value => "value",
            Figure::P99 => "p99",
            Figure::PerSecond => "per second",
            Figure::CacheLines => "cache lines",
            Figure::Memcpy => "memcpy",
            Figure::Futex => "futex",
            Figure::PlainUdp => "plain UDP",
            Figure::Tcp => "TCP",
            Figure::YardstickP99 => "p99 of the yardstick",
            Figure::OneQueuePair => "one queue pair",
            Figure::Without => "without it",
            Figure::UcxMemory => "UCX posix,cma",
            Figure::UcxTcp => "UCX tcp",
        }
    }

    /// The yardstick that a report names so.
    pub(super) fn of_yardstick(name: &str) -> Option<Figure> {
        [Figure::CacheLines, Figure::Memcpy, Figure::Futex, Figure::PlainUdp]
            .into_iter()
            .find(|figure| figure.name() == name)
    }
}

/// A figure, alone or by another one of the same rounds, and what it should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Comparison {
    pub(super) figure: Figure,
    pub(super) with: Option<Figure>,
    pub(super) goal: Option<Goal>,
}

/// What a figure, or its ratio to another, should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn holds(self, value: f64) -> bool {
        match self {
            Goal::AtMost(most) => value <= most,
            Goal::AtLeast(least) => value >= least,
        }
    }
}

/// A figure by itself.
pub(super) const fn alone(figure: Figure) -> Comparison {
    Comparison { figure, with: None, goal: None }
}

/// A figure by another one.
pub(super) const fn beside(figure: Figure, with: Figure) -> Comparison {
    Comparison { figure, with: Some(with), goal: None }
}

pub(super) const fn at_most(comparison: Comparison, most: f64) -> Comparison {
    Comparison { goal: Some(Goal::AtMost(most)), ..comparison }
}

pub(super) const fn at_least(comparison: Comparison, least: f64) -> Comparison {
    Comparison { goal: Some(Goal::AtLeast(least)), ..comparison }
}

/// The figures of one round.
pub(super) type Round = BTreeMap<Figure, f64>;

/// What the rounds say of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Compared {
    pub(super) figure: Spread,
    pub(super) with: Option<Spread>,
    /// The median of the rounds' ratios, which is not the ratio of two medians.
    pub(super) ratio: Option<f64>,
    /// None: there is no goal.
    pub(super) holds: Option<bool>,
}

impl Comparison {
    /// What these rounds say of it; none if no round has both figures.
    pub(super) fn of(&self, rounds: &[Round]) -> Option<Compared> {
        let all = |figure: Figure| -> Vec<f64> {
            rounds.iter().filter_map(|round| round.get(&figure).copied()).collect()
        };
        let figure = Spread::of(&all(self.figure))?;
        let Some(with) = self.with else {
            let holds = self.goal.map(|goal| goal.holds(figure.median));
            return Some(Compared { figure, with: None, ratio: None, holds });
        };
        let ratio = |round: &Round| {
            let (value, with) = (round.get(&self.figure)?, round.get(&with)?);
            (*with > 0.0).then(|| value / with)
        };
        let ratio = Spread::of(&rounds.iter().filter_map(ratio).collect::<Vec<f64>>())?.median;
        let holds = self.goal.map(|goal| goal.holds(ratio));
        Some(Compared { figure, with: Spread::of(&all(with)), ratio: Some(ratio), holds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(of: &[[f64; 2]]) -> Vec<Round> {
        of.iter().map(|[value, raw]| [(Figure::Value, *value), (Figure::Memcpy, *raw)].into()).collect()
    }

    #[test]
    fn a_goal_is_held_by_the_median_of_the_ratios() {
        // The ratio of the medians would be 2.0.
        let rounds = rounds(&[[1.0, 1.0], [2.0, 0.5], [3.0, 1.5]]);
        let compared = at_least(beside(Figure::Value, Figure::Memcpy), 2.0).of(&rounds).expect("figures");
        assert_eq!((compared.ratio, compared.holds), (Some(2.0), Some(true)));
        let spread = compared.figure;
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
        assert_eq!(compared.with.map(|with| with.median), Some(1.0));
        let held = |comparison: Comparison| comparison.of(&rounds).and_then(|compared| compared.holds);
        assert_eq!(held(at_most(beside(Figure::Value, Figure::Memcpy), 1.9)), Some(false));
        assert_eq!(held(at_most(alone(Figure::Value), 2.0)), Some(true));
        assert_eq!(held(at_least(alone(Figure::Value), 2.1)), Some(false));
        assert_eq!(held(alone(Figure::Value)), None);
    }

    #[test]
    fn what_no_round_has_is_not_compared() {
        let rounds = rounds(&[[1.0, 0.0]]);
        assert_eq!(beside(Figure::Value, Figure::UcxTcp).of(&rounds), None);
        assert_eq!(beside(Figure::Value, Figure::Memcpy).of(&rounds), None, "nothing by zero");
        assert_eq!(alone(Figure::P99).of(&rounds), None);
    }
}

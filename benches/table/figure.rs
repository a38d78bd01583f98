//! The figures of a row, their comparisons, and goals.

use std::collections::BTreeMap;

use pumice_perf::SampleSpread;

/// A quantity that is measured in each round of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    /// The subject of the row; of times, the median of a round.
    Value,
    /// The time that 99 % of the messages of a round did not exceed.
    P99,
    PerSecond,
    CacheLines,
    Memcpy,
    Futex,
    PlainUdp,
    Tcp,
    /// The 99th percentile of the yardstick.
    YardstickP99,
    OneQueuePair,
    /// The value without the subject of the row.
    Without,
    UcxMemory,
    UcxTcp,
}

impl Figure {
    /// Returns its name in tables and JSON.
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

    /// Returns the figure of a yardstick, by its name in a report.
    pub(super) fn of_yardstick(name: &str) -> Option<Figure> {
        [Figure::CacheLines, Figure::Memcpy, Figure::Futex, Figure::PlainUdp]
            .into_iter()
            .find(|figure| figure.name() == name)
    }
}

/// A figure, alone or compared with another one of the same rounds, and its goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FigureComparison {
    pub(super) figure: Figure,
    pub(super) with: Option<Figure>,
    pub(super) goal: Option<FigureGoal>,
}

/// The goal of a figure, or of its ratio to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FigureGoal {
    AtMost(f64),
    AtLeast(f64),
}

impl FigureGoal {
    fn holds(self, value: f64) -> bool {
        match self {
            FigureGoal::AtMost(most) => value <= most,
            FigureGoal::AtLeast(least) => value >= least,
        }
    }
}

/// Returns a figure that is compared with none.
pub(super) const fn alone(figure: Figure) -> FigureComparison {
    FigureComparison { figure, with: None, goal: None }
}

/// Returns a figure that is compared with another one.
pub(super) const fn beside(figure: Figure, with: Figure) -> FigureComparison {
    FigureComparison { figure, with: Some(with), goal: None }
}

pub(super) const fn at_most(comparison: FigureComparison, most: f64) -> FigureComparison {
    FigureComparison { goal: Some(FigureGoal::AtMost(most)), ..comparison }
}

pub(super) const fn at_least(comparison: FigureComparison, least: f64) -> FigureComparison {
    FigureComparison { goal: Some(FigureGoal::AtLeast(least)), ..comparison }
}

/// The values of the figures in one round.
pub(super) type RoundFigures = BTreeMap<Figure, f64>;

/// The result of a comparison over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ComparedFigure {
    pub(super) figure: SampleSpread,
    pub(super) with: Option<SampleSpread>,
    /// Median of the rounds' ratios, which is not the ratio of two medians.
    pub(super) ratio: Option<f64>,
    /// The goal is met; `None` if there is no goal.
    pub(super) holds: Option<bool>,
}

impl FigureComparison {
    /// Evaluates the comparison over these rounds; `None` if no round has both figures.
    pub(super) fn of(&self, rounds: &[RoundFigures]) -> Option<ComparedFigure> {
        let all = |figure: Figure| -> Vec<f64> {
            rounds.iter().filter_map(|round| round.get(&figure).copied()).collect()
        };
        let figure = SampleSpread::of(&all(self.figure))?;
        let Some(with) = self.with else {
            let holds = self.goal.map(|goal| goal.holds(figure.median));
            return Some(ComparedFigure { figure, with: None, ratio: None, holds });
        };
        let ratio = |round: &RoundFigures| {
            let (value, with) = (round.get(&self.figure)?, round.get(&with)?);
            (*with > 0.0).then(|| value / with)
        };
        let ratio = SampleSpread::of(&rounds.iter().filter_map(ratio).collect::<Vec<f64>>())?.median;
        let holds = self.goal.map(|goal| goal.holds(ratio));
        Some(ComparedFigure { figure, with: SampleSpread::of(&all(with)), ratio: Some(ratio), holds })
    }
}

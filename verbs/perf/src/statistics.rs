//! Medians and percentiles.

use std::time::Duration;

/// Returns the middle of some values, the mean of the two middle ones if their number is even; 0 if there are
/// none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    if sorted.len().is_multiple_of(2) && middle > 0 {
        (at(middle - 1) + at(middle)) / 2.0
    } else {
        at(middle)
    }
}

pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0)
}

pub(crate) fn most(values: &[f64]) -> f64 {
    values.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0)
}

/// Values of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleSpread {
    /// Middle of the values, mean of the two middle ones if their number is even.
    pub median: f64,
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
}

impl SampleSpread {
    /// Returns the spread of these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<SampleSpread> {
        let spread = || SampleSpread { median: median(values), least: least(values), most: most(values) };
        (!values.is_empty()).then(spread)
    }
}

/// Times of single messages in one round, in ns.
#[derive(Debug, Default)]
pub(crate) struct LatencySamples {
    ns: Vec<u32>,
}

/// Largest number of times stored per round: more give no further information.
const MAX_TIMES: usize = 1 << 20;

impl LatencySamples {
    pub(crate) fn new() -> LatencySamples {
        // The memory is touched in advance: growing while measuring would show up in the percentiles.
        let mut ns = vec![1; MAX_TIMES];
        ns.clear();
        LatencySamples { ns }
    }

    pub(crate) fn clear(&mut self) {
        self.ns.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, time: Duration) {
        if self.ns.len() < MAX_TIMES {
            self.ns.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
        }
    }

    /// Returns p50 and p99 in µs; `None` without messages.
    pub(crate) fn percentiles(&mut self) -> Option<Percentiles> {
        self.ns.sort_unstable();
        let last = self.ns.len().checked_sub(1)?;
        let at = |share: f64| {
            let index = (last as f64 * share).round() as usize;
            self.ns.get(index).map_or(0.0, |ns| f64::from(*ns) / 1000.0)
        };
        Some(Percentiles { p50: at(0.50), p99: at(0.99) })
    }
}

/// Two points of a distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Percentiles {
    pub(crate) fn scaled(self, factor: f64) -> Percentiles {
        Percentiles { p50: self.p50 * factor, p99: self.p99 * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(SampleSpread::of(&[2.0, 1.0]), Some(SampleSpread { median: 1.5, least: 1.0, most: 2.0 }));
        assert_eq!(SampleSpread::of(&[]), None);
    }

    #[test]
    fn percentiles_of_a_thousand() {
        let mut times = LatencySamples::new();
        assert_eq!(times.percentiles(), None);
        for us in (0..=1000).rev() {
            times.push(Duration::from_micros(us));
        }
        assert_eq!(times.percentiles(), Some(Percentiles { p50: 500.0, p99: 990.0 }));
    }
}

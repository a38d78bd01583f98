//! Several pairs of ends that exchange messages at the same time.

use pumice_device::settings::Wire;
use serde::Serialize;

use crate::machine::is_emulated;
use crate::plan::Plan;
use crate::statistics::median;

/// Two ends that exchange messages, for instance a [`Session`](crate::Session) in a thread or process of its
/// own.
pub trait ExchangingPair {
    /// Error of an exchange.
    type Error;

    /// Begins to exchange messages for this number of seconds, without waiting for the end.
    ///
    /// # Errors
    /// Fails if the pair is gone.
    fn begin(&mut self, seconds: f64) -> Result<(), Self::Error>;

    /// Waits until the time is over; returns round trips per second.
    ///
    /// # Errors
    /// Fails if the exchange failed.
    fn finish(&mut self) -> Result<f64, Self::Error>;
}

/// Results of several pairs, compared with one of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PairsReport {
    /// Name of the measurement: service, operation, "pairs".
    pub test: String,
    /// Round trips per second of all pairs together: the median of the rounds.
    pub value: f64,
    /// Unit of the values: "round trips/s".
    pub unit: &'static str,
    /// Medium that packets may use to a process of the same user on the same host.
    pub wire: Wire,
    /// True if the processors of the machine are emulated.
    pub emulated: bool,
    /// Number of pairs.
    pub pairs: usize,
    /// Round trips per second of one pair alone: the median of the rounds.
    pub one_pair: f64,
    /// Median of the rounds' ratios of all pairs to one.
    pub ratio_one_pair: f64,
    /// Payload of a message in bytes.
    pub size_bytes: usize,
    /// Number of rounds of either kind.
    pub rounds: usize,
}

/// Lets all pairs exchange messages of the plan, alternately with the first of them alone, after a warm-up.
/// `after_round` gets the number of rounds that are done.
///
/// # Errors
/// Fails with the first error of a pair.
pub fn compare<P: ExchangingPair>(
    plan: &Plan,
    pairs: &mut [P],
    after_round: &mut dyn FnMut(usize),
) -> Result<PairsReport, P::Error> {
    round(pairs, plan.round_seconds.min(0.05))?;
    let (mut all, mut one, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=plan.rounds {
        let together = round(pairs, plan.round_seconds)?;
        let alone = round(pairs.get_mut(..1).unwrap_or_default(), plan.round_seconds)?;
        all.push(together);
        one.push(alone);
        ratios.push(together / alone.max(f64::MIN_POSITIVE));
        after_round(number);
    }
    Ok(PairsReport {
        test: format!("{}_{}_pairs", plan.service.name(), plan.operation.name()),
        value: median(&all),
        unit: "round trips/s",
        wire: plan.wire,
        emulated: is_emulated(),
        pairs: pairs.len(),
        one_pair: median(&one),
        ratio_one_pair: median(&ratios),
        size_bytes: plan.size_bytes,
        rounds: plan.rounds,
    })
}

/// Runs all of `pairs` at the same time; returns the sum of their round trips per second.
fn round<P: ExchangingPair>(pairs: &mut [P], seconds: f64) -> Result<f64, P::Error> {
    for pair in &mut *pairs {
        pair.begin(seconds)?;
    }
    pairs.iter_mut().map(P::finish).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::plan::{Operation, Service};

    /// A pair that does one round trip in each tenth of a second.
    struct Steady(u32);

    impl ExchangingPair for Steady {
        type Error = String;

        fn begin(&mut self, _: f64) -> Result<(), String> {
            self.0 += 1;
            Ok(())
        }

        fn finish(&mut self) -> Result<f64, String> {
            Ok(10.0)
        }
    }

    #[test]
    fn all_pairs_alternate_with_the_first() {
        let mut pairs = [Steady(0), Steady(0), Steady(0)];
        let mut plan = plan(Operation::Send, Service::Rc);
        plan.rounds = 2;
        let mut rounds_done = Vec::new();
        let report =
            compare(&plan, &mut pairs, &mut |number| rounds_done.push(number)).expect("no pair fails");
        assert_eq!((report.value, report.one_pair, report.ratio_one_pair), (30.0, 10.0, 3.0));
        assert_eq!(pairs.map(|pair| pair.0), [5, 3, 3]);
        assert_eq!(rounds_done, [1, 2]);
    }
}

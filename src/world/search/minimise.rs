//! The departures from the plain order that a failure needs.

use std::collections::BTreeMap;

use pumice_world::Departure;

use super::super::options::SearchWorldOptions;
use super::failure::Failure;
use super::runner::{Order, Runner};
use crate::outcome::CommandError;

/// Runs that one failure may cost.
const MOST_RUNS: u32 = 300;

type Departures = BTreeMap<u64, Departure>;

/// Reduces the first run of a failure, records what is left, and says it in words.
pub(super) fn reduce(
    runner: &Runner<'_>,
    options: &SearchWorldOptions,
    seed: u64,
    failure: &mut Failure,
) -> Result<(), CommandError> {
    let all: Departures = failure.first.departures.iter().map(|(point, (what, _))| (*point, *what)).collect();
    let mut runs = 0;
    let mut fails = |departures: &Departures| -> Result<bool, CommandError> {
        runs += 1;
        if runs > MOST_RUNS {
            return Ok(false);
        }
        let outcome = runner.run(seed, &Order::Listed(departures.clone()), None)?;
        Ok(outcome.is_some_and(|outcome| outcome.is_failure && outcome.end == failure.end))
    };
    let needed = if fails(&all)? { smallest(all, &mut fails)? } else { all };
    std::fs::create_dir_all(&options.keep).map_err(|error| {
        CommandError::Failed(format!("{} cannot be made: {error}", options.keep.display()))
    })?;
    let file = options.keep.join(format!("seed-{seed}.world"));
    if let Some(last) = runner.run(seed, &Order::Listed(needed), Some(&file))? {
        failure.needs = last.departures.into_values().map(|(_, words)| words).collect();
        failure.recording = Some(file);
    }
    Ok(())
}

/// A smallest part of these departures with which a run still fails: none of it can be left out (delta
/// debugging, with halves first).
fn smallest<E>(
    mut needed: Departures,
    fails: &mut impl FnMut(&Departures) -> Result<bool, E>,
) -> Result<Departures, E> {
    if fails(&Departures::new())? {
        return Ok(Departures::new());
    }
    let mut size = needed.len().div_ceil(2).max(1);
    loop {
        let points: Vec<u64> = needed.keys().copied().collect();
        let mut has_changed = false;
        for part in points.chunks(size) {
            let mut without = needed.clone();
            without.retain(|point, _| !part.contains(point));
            if without.len() < needed.len() && fails(&without)? {
                needed = without;
                has_changed = true;
            }
        }
        match (has_changed, size) {
            (true, _) => size = size.min(needed.len().max(1)),
            (false, 1) => return Ok(needed),
            (false, _) => size = size.div_ceil(2),
        }
        if needed.is_empty() {
            return Ok(needed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_is_left_out() {
        let all: Departures = (0..100).map(|point| (point, Departure::Switch(0))).collect();
        let mut runs = 0;
        let mut fails = |departures: &Departures| -> Result<bool, ()> {
            runs += 1;
            Ok([17, 63].iter().all(|point| departures.contains_key(point)))
        };
        let needed = smallest(all, &mut fails).unwrap();
        assert_eq!(needed.into_keys().collect::<Vec<_>>(), [17, 63]);
        assert!(runs < 100, "{runs}");
        let always = &mut |_: &Departures| Ok::<bool, ()>(true);
        assert!(
            smallest((0..9).map(|point| (point, Departure::Stall(1))).collect(), always).unwrap().is_empty()
        );
    }
}

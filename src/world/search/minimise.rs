//! The departures from the plain order that a failure needs.

use std::collections::BTreeMap;

use indicatif::ProgressBar;
use pumice_world::Departure;

use super::super::result::Failure;
use super::failure::RepeatedFailure;
use super::runner::{Order, Runner};
use crate::outcome::CommandError;

/// Runs that one failure may cost.
const MOST_RUNS: u32 = 300;

type Departures = BTreeMap<u64, Departure>;

/// Reduces the first run of a failure, records what is left, and says it in words.
pub(super) fn reduce(
    runner: &Runner<'_>,
    bar: &ProgressBar,
    way: &RepeatedFailure,
    failure: &mut Failure,
) -> Result<(), CommandError> {
    let all: Departures = way.first.departures.iter().map(|(point, (what, _))| (*point, *what)).collect();
    let mut runs = 0;
    let mut fails = |departures: &Departures| -> Result<bool, CommandError> {
        runs += 1;
        if runs > MOST_RUNS {
            return Ok(false);
        }
        let outcome = runner.run(way.seed, &Order::Listed(moved(&all, departures)), None)?;
        bar.inc(1);
        Ok(outcome.is_some_and(|outcome| outcome.is_failure && outcome.end == failure.end))
    };
    // If the list alone does not bring the failure about, the seed does.
    let order = match fails(&all)? {
        true => Order::Listed(moved(&all, &smallest(all.clone(), &mut fails)?)),
        false => Order::Drawn,
    };
    let file = runner.keep()?.join(format!("seed-{}.world", way.seed));
    if let Some(last) = runner.run(way.seed, &order, Some(&file))? {
        failure.needs = last.departures.into_values().map(|(_, words)| words).collect();
        failure.recording = Some(file.display().to_string());
    }
    Ok(())
}

/// The departures that are kept, with the numbers that they have when the others are left out: after each rest it
/// is decided once more who goes on, which is a number.
fn moved(all: &Departures, kept: &Departures) -> Departures {
    let (mut moved, mut gone) = (Departures::new(), 0);
    for (point, what) in all {
        if kept.contains_key(point) {
            moved.entry(point.saturating_sub(gone)).or_insert(*what);
        } else if matches!(what, Departure::Stall(_)) {
            gone += 1;
        }
    }
    moved
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
    #[test]
    fn what_is_behind_a_rest_that_is_left_out_moves() {
        let all: Departures = [
            (4, Departure::Switch(1)),
            (5, Departure::Stall(10)),
            (6, Departure::Switch(0)),
            (9, Departure::Stall(20)),
            (20, Departure::Switch(2)),
        ]
        .into();
        assert_eq!(moved(&all, &all), all);
        let mut kept = all.clone();
        kept.remove(&9);
        let wanted = [(4, Departure::Switch(1)), (5, Departure::Stall(10)), (6, Departure::Switch(0))];
        let wanted: Departures = wanted.into_iter().chain([(19, Departure::Switch(2))]).collect();
        assert_eq!(moved(&all, &kept), wanted);
        kept.remove(&5);
        let wanted = [(4, Departure::Switch(1)), (5, Departure::Switch(0)), (18, Departure::Switch(2))];
        assert_eq!(moved(&all, &kept), wanted.into());
    }
}

//! Finds the departures from the plain order that a failure needs.

use std::collections::BTreeMap;

use indicatif::ProgressBar;
use pumice_world::Departure;

use super::super::result::SearchFailure;
use super::failure::RepeatedFailure;
use super::runner::{ScheduleOrder, SeedRunner};
use crate::outcome::CommandError;

/// Maximum number of runs for one failure.
const MAX_RUNS: u32 = 300;

type Departures = BTreeMap<u64, Departure>;

/// Reduces the first run of a failure, records the reduced run, and describes it.
pub(super) fn reduce(
    runner: &SeedRunner<'_>,
    bar: &ProgressBar,
    group: &RepeatedFailure,
    failure: &mut SearchFailure,
) -> Result<(), CommandError> {
    let all: Departures = group.first.departures.iter().map(|(point, (what, _))| (*point, *what)).collect();
    let (mut runs, end) = (0, failure.end.clone());
    let mut fails = |departures: &Departures| -> Result<bool, CommandError> {
        runs += 1;
        if runs > MAX_RUNS {
            return Ok(false);
        }
        let outcome = runner.run(group.seed, &ScheduleOrder::Listed(moved(&all, departures)), None)?;
        bar.inc(1);
        Ok(outcome.is_some_and(|outcome| outcome.is_failure && outcome.end == end))
    };
    let plain = runner.run(group.seed, &ScheduleOrder::Listed(Departures::new()), None)?;
    failure.plain_end =
        plain.filter(|plain| plain.is_failure && plain.end != failure.end).map(|plain| plain.end);
    // If the list alone does not reproduce the failure, the seed does.
    let order = match fails(&all)? {
        true => ScheduleOrder::Listed(moved(&all, &smallest(all.clone(), &mut fails)?)),
        false => ScheduleOrder::Drawn,
    };
    let file = runner.keep()?.join(format!("seed-{}.world", group.seed));
    if let Some(last) = runner.run(group.seed, &order, Some(&file))? {
        failure.needs = last.departures.into_values().map(|(_, words)| words).collect();
        failure.recording = Some(file.display().to_string());
    }
    Ok(())
}

/// Renumbers the departures that are kept for a run without the others: after each rest, the choice of the
/// next thread takes one more number.
fn moved(all: &Departures, reduced: &Departures) -> Departures {
    let (mut moved, mut removed) = (Departures::new(), 0);
    for (point, what) in all {
        if reduced.contains_key(point) {
            moved.entry(point.saturating_sub(removed)).or_insert(*what);
        } else if matches!(what, Departure::Stall(_) | Departure::Preempt { .. }) {
            removed += 1;
        }
    }
    moved
}

/// Returns a minimal part of these departures with which a run still fails: none can be left out (delta
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
        let mut reduced = all.clone();
        reduced.remove(&9);
        let wanted = [(4, Departure::Switch(1)), (5, Departure::Stall(10)), (6, Departure::Switch(0))];
        let wanted: Departures = wanted.into_iter().chain([(19, Departure::Switch(2))]).collect();
        assert_eq!(moved(&all, &reduced), wanted);
        reduced.remove(&5);
        let wanted = [(4, Departure::Switch(1)), (5, Departure::Switch(0)), (18, Departure::Switch(2))];
        assert_eq!(moved(&all, &reduced), wanted.into());
    }
}

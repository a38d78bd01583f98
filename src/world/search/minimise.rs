//! Finds the departures from the plain order that a failure needs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pumice_world::{Departure, POINT};

use super::super::result::SearchFailure;
use super::failure::RepeatedFailure;
use super::lines::line_of;
use super::runner::{ScheduleOrder, SeedRunner};
use crate::outcome::CommandError;

/// Maximum number of runs for one failure.
const MAX_RUNS: u32 = 300;
/// Maximum time for one failure.
const MAX_TIME: Duration = Duration::from_secs(120);
/// Rests with which fewer departures may be enough, in ns.
const LONGER_RESTS_NS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Numbers of points by which a departure is moved when it is tried alone, and its rest then, in ns.
const SHIFTS: [i64; 10] = [1, -1, 2, -2, 3, -3, 4, -4, 5, -5];
const SHIFTED_REST_NS: u64 = 10_000_000;
/// Number of departures that need not be fewer.
const FEW: usize = 3;

type Departures = BTreeMap<u64, Departure>;

/// Reduces the first run of a failure, records the reduced run, and describes it.
pub(super) fn reduce(
    runner: &SeedRunner<'_>,
    bar: &ProgressBar,
    group: &RepeatedFailure,
    failure: &mut SearchFailure,
) -> Result<(), CommandError> {
    let all: Departures = group.first.departures.iter().map(|(number, (what, _))| (*number, *what)).collect();
    let begun = Instant::now();
    let (mut runs, end) = (0, failure.end.clone());
    let mut fails = |departures: &Departures| -> Result<bool, CommandError> {
        runs += 1;
        if runs > MAX_RUNS || begun.elapsed() > MAX_TIME {
            return Ok(false);
        }
        let outcome = runner.run(group.seed, &ScheduleOrder::Listed(departures.clone()), None)?;
        bar.inc(1);
        Ok(outcome.is_some_and(|outcome| outcome.is_failure && outcome.end == end))
    };
    let plain = runner.run(group.seed, &ScheduleOrder::Listed(Departures::new()), None)?;
    failure.plain_end =
        plain.filter(|plain| plain.is_failure && plain.end != failure.end).map(|plain| plain.end);
    // If the list alone does not reproduce the failure, the seed does.
    let order = match fails(&all)? {
        true => ScheduleOrder::Listed(with_longer_rests(smallest(all, &mut fails)?, &mut fails)?),
        false => ScheduleOrder::Drawn,
    };
    let file = runner.keep()?.join(format!("seed-{}.world", group.seed));
    if let Some(last) = runner.run(group.seed, &order, Some(&file))? {
        let places = &last.places;
        let needs = last.departures.into_iter().map(|(number, (_, words))| match places.get(&number) {
            Some(place) => format!("{words} at {}", line_of(place)),
            None => words,
        });
        failure.needs = needs.collect();
        failure.recording = Some(file.display().to_string());
    }
    Ok(())
}

/// Returns fewer departures, if the failure needs fewer with longer rests: several short ones often stand for
/// one.
fn with_longer_rests<E>(
    mut needed: Departures,
    fails: &mut impl FnMut(&Departures) -> Result<bool, E>,
) -> Result<Departures, E> {
    for rest_ns in LONGER_RESTS_NS {
        // One alone, those between two instructions first.
        let mut one_by_one: Vec<(u64, Departure)> =
            needed.iter().map(|(number, what)| (*number, *what)).collect();
        one_by_one.sort_by_key(|(_, what)| !matches!(what, Departure::Preempt { .. }));
        for (number, what) in one_by_one.into_iter().filter(|_| needed.len() > 1) {
            let alone: Departures = [(number, longer(what, rest_ns))].into();
            if fails(&alone)? {
                return Ok(alone);
            }
        }
        let all: Departures = needed.iter().map(|(number, what)| (*number, longer(*what, rest_ns))).collect();
        if needed.len() > FEW && fails(&all)? {
            needed = smallest(all, fails)?;
        }
    }
    if needed.len() > FEW {
        // Without the others, a thread may have made some calls more or less before.
        for (number, what) in needed.iter().filter(|(_, what)| !matches!(what, Departure::Switch(_))) {
            for shift in SHIFTS {
                let moved = number.checked_add_signed(shift * POINT as i64).unwrap_or(*number);
                let alone: Departures = [(moved, longer(*what, SHIFTED_REST_NS))].into();
                if fails(&alone)? {
                    return Ok(alone);
                }
            }
        }
    }
    Ok(needed)
}

/// Returns the departure with a rest of at least this time.
fn longer(what: Departure, at_least_ns: u64) -> Departure {
    match what {
        Departure::Switch(_) => what,
        Departure::Stall(ns) => Departure::Stall(ns.max(at_least_ns)),
        Departure::Preempt { steps, rest_ns } => {
            Departure::Preempt { steps, rest_ns: rest_ns.max(at_least_ns) }
        }
    }
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
    fn several_short_rests_become_one() {
        let needed: Departures =
            [(1, Departure::Stall(900)), (2, Departure::Switch(0)), (3, Departure::Stall(700))].into();
        let mut fails = |departures: &Departures| -> Result<bool, ()> {
            let rested = departures.values().filter_map(|what| match what {
                Departure::Stall(ns) => Some(*ns),
                _ => None,
            });
            Ok(rested.sum::<u64>() > 1_500)
        };
        let one = with_longer_rests(needed, &mut fails).unwrap();
        assert_eq!(one, [(1, Departure::Stall(1_000_000))].into());
    }
}

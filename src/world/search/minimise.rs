//! Finds the departures from the plain order that a failure needs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pumice_world::{Departure, POINT};

use super::super::result::SearchFailure;
use super::failure::{RepeatedFailure, line_of};
use super::runner::{ScheduleOrder, SeedRunner};
use crate::outcome::CommandError;

/// Maximum number of runs for one failure.
const MAX_RUNS: u32 = 300;
/// Maximum time for one failure.
const MAX_TIME: Duration = Duration::from_secs(120);
/// Rests with which fewer departures may be enough, in ns.
const LONGER_RESTS_NS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Numbers of points by which a departure is moved when it is tried alone.
const SHIFTS: [i64; 6] = [1, -1, 2, -2, 3, -3];
/// Rest of departures that are tried without most others, in ns.
const SOLE_REST_NS: u64 = 10_000_000;
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
        let locations = &last.locations;
        let needs = last.departures.into_iter().map(|(number, (_, words))| match locations.get(&number) {
            Some(place) => format!("{words} at {}", line_of(place)),
            None => words,
        });
        failure.needs = needs.collect();
        if failure.needs.is_empty() && runner.shuffles(group.seed) {
            let unshuffled = runner.run(group.seed, &ScheduleOrder::Unshuffled, None)?;
            if unshuffled.is_some_and(|outcome| !outcome.is_failure) {
                let seed = group.seed;
                failure.needs =
                    vec![format!("what the specification leaves open came as --shuffle {seed} draws it")];
            }
        }
        failure.recording = Some(file.display().to_string());
    }
    Ok(())
}

/// Returns fewer departures, if the failure needs fewer with longer rests: several short ones, or switches,
/// often stand for one rest.
fn with_longer_rests<E>(
    mut needed: Departures,
    fails: &mut impl FnMut(&Departures) -> Result<bool, E>,
) -> Result<Departures, E> {
    for rest_ns in LONGER_RESTS_NS {
        // One alone, those between two instructions first.
        for one in rests(&needed, rest_ns, 0).into_iter().filter(|_| needed.len() > 1) {
            if fails(&[one].into())? {
                return Ok([one].into());
            }
        }
        let all: Departures = needed.iter().map(|(number, what)| (*number, longer(*what, rest_ns))).collect();
        if needed.len() > FEW && fails(&all)? {
            let fewer = smallest(all, fails)?;
            if fewer.len() < needed.len() {
                needed = fewer;
            }
        }
    }
    if needed.len() <= FEW {
        return Ok(needed);
    }
    // Without the others, a thread may have made some calls more or less before.
    for shift in SHIFTS {
        for one in rests(&needed, SOLE_REST_NS, shift) {
            if fails(&[one].into())? {
                return Ok([one].into());
            }
        }
    }
    let each = rests(&needed, SOLE_REST_NS, 0);
    for (index, one) in each.iter().enumerate() {
        for other in each.iter().skip(index + 1) {
            let two: Departures = [*one, *other].into();
            if fails(&two)? {
                return Ok(two);
            }
        }
    }
    Ok(needed)
}

/// Returns the departures, each with a rest of at least this time in place of a switch, and this number of
/// points later; those between two instructions first.
fn rests(departures: &Departures, rest_ns: u64, later: i64) -> Vec<(u64, Departure)> {
    let rest = |(number, what): (&u64, &Departure)| {
        let number = number.checked_add_signed(later * POINT as i64).unwrap_or(*number);
        match what {
            Departure::Switch(_) => (number - number % POINT, Departure::Stall(rest_ns)),
            rest => (number, longer(*rest, rest_ns)),
        }
    };
    let mut rests: Vec<(u64, Departure)> = departures.iter().map(rest).collect();
    rests.sort_by_key(|(_, what)| !matches!(what, Departure::Preempt { .. }));
    rests
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
        let at = |point: u64| point * POINT;
        let needed: Departures = [
            (at(1), Departure::Stall(900)),
            (at(2) + 1, Departure::Switch(0)),
            (at(3), Departure::Stall(700)),
        ]
        .into();
        let rested = |departures: &Departures| -> u64 {
            let ns = departures.values().map(|what| if let Departure::Stall(ns) = what { *ns } else { 0 });
            ns.sum()
        };
        let mut fails = |departures: &Departures| Ok::<bool, ()>(rested(departures) > 1_500);
        let one = with_longer_rests(needed.clone(), &mut fails).unwrap();
        assert_eq!(one, [(at(1), Departure::Stall(1_000_000))].into());
        // A switch becomes a rest at its point.
        let mut fails = |departures: &Departures| Ok::<bool, ()>(departures.contains_key(&at(2)));
        let one = with_longer_rests(needed, &mut fails).unwrap();
        assert_eq!(one, [(at(2), Departure::Stall(1_000_000))].into());
    }

    #[test]
    fn a_rest_is_found_some_points_later() {
        let mut needed: Departures = (1..=4).map(|point| (point * POINT, Departure::Stall(5))).collect();
        needed.insert(9 * POINT, Departure::Preempt { steps: 3, rest_ns: 5 });
        let mut fails = |departures: &Departures| -> Result<bool, ()> {
            Ok(departures.len() == 5 || departures.contains_key(&(11 * POINT)))
        };
        let one = with_longer_rests(needed, &mut fails).unwrap();
        let rest = Departure::Preempt { steps: 3, rest_ns: SOLE_REST_NS };
        assert_eq!(one, [(11 * POINT, rest)].into());
    }
}

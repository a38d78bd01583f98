//! `pumice world search`: which orders break a program.
//!
//! Each seed is a run of "pumice world". Failures that end alike are one group; of each group the first one
//! is run again, reduced, and kept.

mod failure;
mod minimise;
mod report;
mod runner;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::options::SearchWorldOptions;
use super::outcome::RunOutcome;
use super::seeds::Shard;
use crate::outcome::{CommandError, CommandResult, Outcome};
use failure::Failure;
use runner::{Order, Runner};

/// Times that a failure is run again to see whether it comes again.
const CONFIRMATIONS: u32 = 3;

/// Runs the command.
pub(super) fn run(options: &SearchWorldOptions, out: &mut dyn Write) -> CommandResult {
    let runner = Runner::new(options)?;
    let begun = Instant::now();
    let found = run_seeds(options, &runner, begun)?;
    let mut failures = Vec::new();
    for (end, mut runs) in group(found.failed) {
        runs.sort_by_key(|(seed, _)| *seed);
        let seeds: Vec<u64> = runs.iter().map(|(seed, _)| *seed).collect();
        let Some((seed, first)) = runs.into_iter().next() else { continue };
        let mut failure =
            Failure { end, seeds, first, confirmed: (0, 0), needs: Vec::new(), recording: None };
        confirm(&runner, seed, &mut failure);
        minimise::reduce(&runner, options, seed, &mut failure)?;
        failures.push(failure);
    }
    let seconds = begun.elapsed().as_secs_f64();
    report::write(options, &failures, found.runs, seconds, out)?;
    if runner.is_interrupted() {
        return Err(CommandError::Failed("interrupted: not all seeds were run".to_owned()));
    }
    Ok(if failures.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// What the runs of all seeds came to.
struct Found {
    runs: u64,
    failed: Vec<(u64, RunOutcome)>,
}

fn run_seeds(
    options: &SearchWorldOptions,
    runner: &Runner<'_>,
    begun: Instant,
) -> Result<Found, CommandError> {
    let (first, last) = (*options.seeds.0.start(), *options.seeds.0.end());
    let own = |seed: &u64| options.shard.is_none_or(|shard: Shard| shard.has(*seed));
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let bar = bar((first..=last).filter(own).count() as u64);
    let (next, failed, trouble) = (AtomicU64::new(first), Mutex::new(Vec::new()), Mutex::new(None));
    let runs = AtomicU64::new(0);
    let is_over = || {
        let is_late = options.time.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds));
        let has_first = options.first && !lock(&failed).is_empty();
        is_late || has_first || runner.is_interrupted() || lock(&trouble).is_some()
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !is_over() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last || seed < first {
                        break;
                    }
                    if !own(&seed) {
                        continue;
                    }
                    match runner.run(seed, &Order::Drawn, None) {
                        Ok(Some(outcome)) if outcome.is_failure => lock(&failed).push((seed, outcome)),
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(error) => *lock(&trouble) = Some(error),
                    }
                    runs.fetch_add(1, Ordering::Relaxed);
                    bar.inc(1);
                    bar.set_message(format!("{} failed", lock(&failed).len()));
                }
            });
        }
    });
    bar.finish_and_clear();
    if let Some(error) = trouble.into_inner().unwrap_or_default() {
        return Err(error);
    }
    let failed = failed.into_inner().unwrap_or_default();
    Ok(Found { runs: runs.into_inner(), failed })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs that ended alike.
fn group(failed: Vec<(u64, RunOutcome)>) -> BTreeMap<String, Vec<(u64, RunOutcome)>> {
    let mut groups: BTreeMap<String, Vec<(u64, RunOutcome)>> = BTreeMap::new();
    for (seed, outcome) in failed {
        groups.entry(outcome.end.clone()).or_default().push((seed, outcome));
    }
    groups
}

/// Runs the first of a group again.
fn confirm(runner: &Runner<'_>, seed: u64, failure: &mut Failure) {
    for _ in 0..CONFIRMATIONS {
        let Ok(Some(again)) = runner.run(seed, &Order::Drawn, None) else { break };
        failure.confirmed.1 += 1;
        let is_same = (&again.end, again.digest) == (&failure.end, failure.first.digest);
        failure.confirmed.0 += u32::from(is_same);
    }
}

fn bar(count: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds, {msg}");
    let bar = ProgressBar::new(count);
    style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
}

//! `pumice world search`: which orders break a program.
//!
//! Each seed is a run of "pumice world". Failures that end alike are one group; of each group the first one
//! is run again, reduced, and kept.

mod failure;
mod minimise;
mod runner;

use std::io::{IsTerminal as _, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::engines;
use super::options::SearchWorldOptions;
use super::report;
use super::result::{Failure, SearchEnd, SearchResult};
use super::seeds::Shard;
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::printed::complain;
use failure::{RepeatedFailure, Ways};
use runner::{Order, Runner};

/// Times that a failure is run again to see whether it comes again.
const CONFIRMATIONS: u32 = 3;
/// Ways to fail that are reduced: a program that ends with other words each time has as many as runs.
const MOST_REDUCED: usize = 32;

/// Runs the command.
pub(super) fn run(options: &SearchWorldOptions, out: &mut dyn Write) -> CommandResult {
    let (shard, variable) = engines::shard(options.shard, |name| std::env::var(name).ok())?;
    if let Some(variable) = variable {
        complain(&format!("{variable} says that this is shard {shard} of the seeds"));
    }
    let runner = Runner::new(options)?;
    let begun = Instant::now();
    let found = run_seeds(options, shard, &runner, begun)?;
    let mut failures = Vec::new();
    let bar = bar(0, "{spinner} reducing failure {msg}: {pos} runs");
    for (number, way) in found.ways.ways.values().enumerate() {
        let mut failure = way.failure();
        if number < MOST_REDUCED {
            bar.set_message(format!("{} of {}", number + 1, found.ways.ways.len()));
            confirm(&runner, &bar, way, &mut failure);
            minimise::reduce(&runner, &bar, way, &mut failure)?;
        }
        failures.push(failure);
    }
    bar.finish_and_clear();
    let command = options.run.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut result = SearchResult::new(command, options.seeds.clone(), shard);
    (result.runs, result.failed, result.failures) = (found.runs, found.ways.failed, failures);
    result.seconds = begun.elapsed().as_secs_f64();
    result.end = if runner.is_interrupted() { SearchEnd::Interrupted } else { found.end };
    save(options, &runner, &result)?;
    report::write(&result, &options.report, "world search", out)?;
    if runner.is_interrupted() {
        return Err(CommandError::Failed("interrupted: not all seeds were run".to_owned()));
    }
    Ok(if result.is_good() { Outcome::Good } else { Outcome::Bad })
}

/// Writes the result for "pumice world merge", if asked; that of a shard always: alone it says little.
fn save(
    options: &SearchWorldOptions,
    runner: &Runner<'_>,
    result: &SearchResult,
) -> Result<(), CommandError> {
    let Shard { number, count } = result.shard;
    let file = match &options.result {
        Some(file) => file.clone(),
        None if result.shard.is_whole() => return Ok(()),
        None => runner.keep()?.join(format!("shard-{number}-of-{count}.json")),
    };
    report::save(&file, &result.json())
}

/// What the runs of all seeds came to.
struct Found {
    runs: u64,
    ways: Ways,
    end: SearchEnd,
}

fn run_seeds(
    options: &SearchWorldOptions,
    shard: Shard,
    runner: &Runner<'_>,
    begun: Instant,
) -> Result<Found, CommandError> {
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let bar = bar(shard.count_of(&options.seeds), "{bar:30} {pos}/{len} seeds, {eta} left{msg}");
    let seeds = Mutex::new(shard.of(&options.seeds));
    let (ways, trouble) = (Mutex::new(Ways::default()), Mutex::new(None));
    let (runs, is_late) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_over = || {
        if options.time.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds)) {
            is_late.store(true, Ordering::Relaxed);
        }
        let has_first = options.first && lock(&ways).failed > 0;
        is_late.load(Ordering::Relaxed) || has_first || runner.is_interrupted() || lock(&trouble).is_some()
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !is_over() {
                    let Some(seed) = lock(&seeds).next() else { break };
                    match runner.run(seed, &Order::Drawn, None) {
                        Ok(Some(outcome)) if outcome.is_failure => {
                            lock(&ways).add(seed, outcome);
                            bar.set_message(format!(", {} failed", lock(&ways).failed));
                        }
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(error) => *lock(&trouble) = Some(error),
                    }
                    runs.fetch_add(1, Ordering::Relaxed);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    if let Some(error) = trouble.into_inner().unwrap_or_default() {
        return Err(error);
    }
    let (runs, ways) = (runs.into_inner(), ways.into_inner().unwrap_or_default());
    let end = if runs == shard.count_of(&options.seeds) {
        SearchEnd::All
    } else if is_late.into_inner() {
        SearchEnd::Time
    } else {
        SearchEnd::First
    };
    Ok(Found { runs, ways, end })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs the first of a group again.
fn confirm(runner: &Runner<'_>, bar: &ProgressBar, way: &RepeatedFailure, failure: &mut Failure) {
    for _ in 0..CONFIRMATIONS {
        let Ok(Some(again)) = runner.run(way.seed, &Order::Drawn, None) else { break };
        bar.inc(1);
        failure.run_again += 1;
        let is_same = (&again.end, again.digest) == (&failure.end, way.first.digest);
        failure.the_same += u32::from(is_same);
    }
}

/// A bar on standard error; hidden where that is no terminal. `template` is indicatif's.
fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

//! `pumice world search`: finds the orders that break a program.
//!
//! Each seed is a run of "pumice world". Failures that end alike form a group; the first run of each group is
//! run again, reduced, and stored.

mod coverage;
mod failure;
mod minimise;
mod runner;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::ci_engines;
use super::options::SearchWorldOptions;
use super::private;
use super::report;
use super::result::{SearchEnd, SearchFailure, SearchResult};
use super::seeds::Shard;
use crate::outcome::{CommandError, CommandResult, Outcome, complain};
use coverage::{Coverage, SeedQueue};
use failure::{FailureGroups, RepeatedFailure};
use runner::{ScheduleOrder, SeedRunner};

/// Number of times that a failure is run again to see whether it recurs.
const CONFIRMING_RUNS: u32 = 3;
/// Time of the world that a run may take: this many times that of the plain order, some seconds, and for each
/// event four times the rest that the kind of order with the longest ones draws.
const PLAIN_TIMES: u64 = 10;
const MORE_SECONDS: u64 = 10;
const REST_NS: u64 = 2_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// Maximum number of groups that are reduced: a program that ends with other words each time has as many as
/// runs.
const MAX_REDUCED: usize = 32;

/// Runs the command.
pub(super) fn run(options: &SearchWorldOptions, out: &mut dyn Write) -> CommandResult {
    let (shard, variable) = ci_engines::shard(options.shard, |name| std::env::var(name).ok())?;
    if let Some(variable) = variable {
        complain(&format!("{variable} says that this is shard {shard} of the seeds"));
    }
    private::check(&options.private)?;
    let runner = SeedRunner::new(options)?;
    let begun = Instant::now();
    limit_runs(options, &runner)?;
    let found = run_seeds(options, shard, &runner, begun)?;
    let mut failures = Vec::new();
    let bar = bar(0, "{spinner} reducing failure {msg}: {pos} runs");
    for (number, failure_group) in found.groups.groups.values().enumerate() {
        let mut failure = failure_group.failure();
        if number < MAX_REDUCED {
            bar.set_message(format!("{} of {}", number + 1, found.groups.groups.len()));
            confirm(&runner, &bar, failure_group, &mut failure);
            minimise::reduce(&runner, &bar, failure_group, &mut failure)?;
        }
        failures.push(failure);
    }
    bar.finish_and_clear();
    let command = options.run.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut result = SearchResult::new(command, options.seeds.clone(), shard);
    (result.runs, result.failed, result.failures) = (found.runs, found.groups.failed, failures);
    result.seconds = begun.elapsed().as_secs_f64();
    (result.orders, result.pairs_in_both_orders_percent) =
        (found.coverage.orders(), found.coverage.percent());
    result.end = if runner.is_interrupted() { SearchEnd::Interrupted } else { found.end };
    save(options, &runner, &result)?;
    report::write(&result, &options.report, "world search", out)?;
    if runner.is_interrupted() {
        return Err(CommandError::Failed("interrupted: not all seeds were run".to_owned()));
    }
    Ok(if result.is_good() { Outcome::Good } else { Outcome::Bad })
}

/// Writes the result for "pumice world merge", if requested. The result of a shard is always written, because
/// it is only a part.
fn save(
    options: &SearchWorldOptions,
    runner: &SeedRunner<'_>,
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

/// The results of the runs of all seeds.
struct SearchTotals {
    runs: u64,
    groups: FailureGroups,
    coverage: Coverage,
    end: SearchEnd,
}

/// Limits the runs to a time of the world that is long beside that of the plain order.
fn limit_runs(options: &SearchWorldOptions, runner: &SeedRunner<'_>) -> Result<(), CommandError> {
    if let Some(seconds) = options.world_time {
        runner.limit(seconds);
        return Ok(());
    }
    let first = *options.seeds.0.start();
    let plain = runner.run(first, &ScheduleOrder::Listed(BTreeMap::new()), None)?;
    // A run that has no end in the plain order either takes as long as --timeout says.
    if let Some(plain) = plain.filter(|plain| plain.virtual_ns > 0) {
        let of_rests_s = plain.events.saturating_mul(REST_NS) / NS_PER_S;
        let plain_s = plain.virtual_ns.saturating_mul(PLAIN_TIMES).div_ceil(NS_PER_S);
        runner.limit(plain_s.saturating_add(of_rests_s).saturating_add(MORE_SECONDS));
    }
    Ok(())
}

fn run_seeds(
    options: &SearchWorldOptions,
    shard: Shard,
    runner: &SeedRunner<'_>,
    begun: Instant,
) -> Result<SearchTotals, CommandError> {
    let jobs =
        options.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let bar = bar(shard.count_of(&options.seeds), "{bar:30} {pos}/{len} seeds, {eta} left{msg}");
    let seeds = Mutex::new(SeedQueue::new(shard, &options.seeds));
    let (groups, trouble) = (Mutex::new(FailureGroups::default()), Mutex::new(None));
    let (runs, is_late) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_over = || {
        if options.time.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds)) {
            is_late.store(true, Ordering::Relaxed);
        }
        let has_first = options.first && lock(&groups).failed > 0;
        is_late.load(Ordering::Relaxed) || has_first || runner.is_interrupted() || lock(&trouble).is_some()
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !is_over() {
                    let Some(seed) = lock(&seeds).next() else { break };
                    let outcome = runner.run(seed, &ScheduleOrder::Drawn, None);
                    if let Ok(Some(outcome)) = &outcome {
                        lock(&seeds).ran(seed, &outcome.met);
                    }
                    match outcome {
                        Ok(Some(outcome)) if outcome.is_failure => {
                            lock(&groups).add(seed, outcome);
                            bar.set_message(format!(", {} failed", lock(&groups).failed));
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
    let (runs, groups) = (runs.into_inner(), groups.into_inner().unwrap_or_default());
    let end = if runs == shard.count_of(&options.seeds) {
        SearchEnd::All
    } else if is_late.into_inner() {
        SearchEnd::Time
    } else {
        SearchEnd::First
    };
    let coverage = seeds.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).coverage;
    Ok(SearchTotals { runs, groups, coverage, end })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs the first run of a group again.
fn confirm(
    runner: &SeedRunner<'_>,
    bar: &ProgressBar,
    failure_group: &RepeatedFailure,
    failure: &mut SearchFailure,
) {
    for _ in 0..CONFIRMING_RUNS {
        let Ok(Some(again)) = runner.run(failure_group.seed, &ScheduleOrder::Drawn, None) else { break };
        bar.inc(1);
        failure.run_again += 1;
        let is_same = (&again.end, again.digest) == (&failure.end, failure_group.first.digest);
        failure.the_same += u32::from(is_same);
    }
}

/// Returns a bar on standard error, hidden if that is no terminal. `template` is a template of indicatif.
fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

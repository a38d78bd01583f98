//! `pumice sweep`: runs a program many times, and each time fails another of its verbs calls, completions or
//! steps of connection management.

mod case;
pub(crate) mod child;
mod options;
mod report_file;
mod run;
mod text;
mod verdict;

use std::io::{IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pumice_device::findings::{Finding, Level, json};

pub(crate) use options::SweepOptions;

use crate::outcome::{CommandError, CommandResult, NO_PROGRAM, NOT_EXECUTABLE, Outcome, complain};
use case::{SweepCase, SweepCases};
use child::RunNamespace;
use run::{RunEnd, RunPurpose, SweepRun, SweepRunner};
use text::Journal;
use verdict::{CleanRuns, Judgement};

/// Time that the run without faults may take.
const CLEAN_LIMIT: Duration = Duration::from_secs(600);
/// A run with a fault may take this many times as long as the run without faults, and [`MIN_EXTRA_TIME`]
/// more.
const TIMEOUT_FACTOR: u32 = 10;
const MIN_EXTRA_TIME: Duration = Duration::from_secs(5);
/// Additional time for a run in which a message of connection management is lost and sent again: its timers
/// take seconds.
const REPEATED_RUNS_LIMIT: Duration = Duration::from_secs(20);
/// Exit codes of shells for a program that does not exist, or cannot be executed.
const NOT_RUN: [i32; 2] = [NOT_EXECUTABLE as i32, NO_PROGRAM as i32];

/// Runs the command.
///
/// # Errors
/// A pattern is wrong, the program fails without faults, or processes or files cannot be created.
pub(crate) fn run(options: &SweepOptions, out: &mut dyn Write) -> CommandResult {
    case::check(options).map_err(CommandError::Usage)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(failed("wait for signals"))?;
    }
    let runner = SweepRunner::new(options, &interrupted).map_err(failed("make a folder for the runs"))?;
    let namespaces = namespaces(options.jobs);
    let Some(first) = namespaces.first() else { return Ok(Outcome::Good) };
    let usual = runner.run(0, first, RunPurpose::Usual, CLEAN_LIMIT).map_err(failed("start the program"))?;
    let Some(usual) = usual else { return Err(stopped(options)) };
    check_usual(&usual)?;
    let mut cases = SweepCases::of(&usual.report.calls, options);
    if options.completions || options.cm {
        let census =
            runner.run(0, first, RunPurpose::Census, CLEAN_LIMIT).map_err(failed("start the program"))?;
        let Some(census) = census else { return Err(stopped(options)) };
        if options.completions {
            cases.add(&census.completed, options);
        }
        if options.cm {
            cases.add_steps(&census.messages, options);
        }
    }
    let limit = options.timeout.unwrap_or(usual.took * TIMEOUT_FACTOR + MIN_EXTRA_TIME);
    let patience = if options.timeout.is_none() { REPEATED_RUNS_LIMIT } else { Duration::ZERO };
    let (mut journal, known) = Journal::open(options).map_err(CommandError::Failed)?;
    let clean = CleanRuns::judge_itself(&usual);
    let sweep = Sweep { runner: &runner, clean: CleanRuns::of(&usual), limit, patience };
    let mut judgements = vec![clean];
    judgements.extend(sweep.run_all(&cases.all, known, &namespaces, &mut journal)?);
    if runner.is_interrupted() {
        return Err(stopped(options));
    }
    report(&judgements, &cases, options, out)
}

/// Creates the network namespaces of the runs: one for each job.
fn namespaces(jobs: u16) -> Vec<RunNamespace> {
    if jobs == 1 {
        return vec![RunNamespace::here()];
    }
    let apart: Option<Vec<RunNamespace>> = (0..jobs).map(|_| RunNamespace::apart()).collect();
    apart.unwrap_or_else(|| {
        complain(
            &"no private network namespaces can be had here (unprivileged user namespaces are forbidden, or \
             unshare and ip are missing): one run after the other",
        );
        vec![RunNamespace::here()]
    })
}

/// Returns an error for a program that fails without faults, which cannot be swept.
fn check_usual(usual: &SweepRun) -> Result<(), CommandError> {
    let said = usual.said.first().or(usual.explained.last());
    let said = said.map_or_else(String::new, |line| format!(": {line}"));
    let sentence = match usual.end {
        RunEnd::Exit(0) if usual.report.calls.is_empty() => {
            "the program made no verbs calls: name one that uses the device".to_owned()
        }
        RunEnd::Exit(0) => return Ok(()),
        RunEnd::Exit(status) if NOT_RUN.contains(&status) => {
            return Err(CommandError::Program {
                sentence: format!("the program cannot be run (see `pumice run`){said}"),
                exit_code: u8::try_from(status).unwrap_or(1),
            });
        }
        RunEnd::Exit(status) => {
            format!("without faults the program ends with status {status}{said}; mend that first")
        }
        RunEnd::Signal(signal) => format!("without faults signal {signal} ends the program; mend that first"),
        RunEnd::Hang => format!("without faults the program does not end in {} s", CLEAN_LIMIT.as_secs()),
    };
    Err(CommandError::Failed(sentence))
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> CommandError {
    move |error| CommandError::Failed(format!("cannot {what}: {error}"))
}

fn stopped(options: &SweepOptions) -> CommandError {
    let hint = match &options.resume {
        Some(_) => "the same command goes on with what is left",
        None => "with --resume FILE the same command could go on",
    };
    CommandError::Failed(format!("the sweep was stopped; {hint}"))
}

fn report(
    judgements: &[Judgement],
    cases: &SweepCases,
    options: &SweepOptions,
    out: &mut dyn Write,
) -> CommandResult {
    let findings: Vec<Finding> = judgements.iter().map(|one| one.to_finding(options)).collect();
    if let Some(file) = &options.junit {
        let written = std::fs::write(file, text::document(judgements, &findings, options));
        written.map_err(|error| {
            CommandError::Failed(format!("{} cannot be written: {error}", file.display()))
        })?;
    }
    if options.json {
        for finding in &findings {
            out.write_all(json::line(&finding.evidence).as_bytes())?;
        }
    } else {
        text::write(judgements, &findings, cases.left_out, options, out)?;
    }
    let bad = findings.iter().any(|finding| finding.level == Level::Error);
    Ok(if bad { Outcome::Bad } else { Outcome::Good })
}

/// All runs of a sweep.
struct Sweep<'a> {
    runner: &'a SweepRunner<'a>,
    clean: CleanRuns,
    limit: Duration,
    /// Additional time for faults that the protocol repairs.
    patience: Duration,
}

/// The state that the jobs share.
struct SweepState<'a> {
    journal: &'a mut Journal,
    judgements: Vec<Option<Judgement>>,
    trouble: Option<std::io::Error>,
}

impl Sweep<'_> {
    /// Runs each case whose result is not known yet; returns the judgements in the order of the cases.
    fn run_all(
        &self,
        cases: &[SweepCase],
        known: Vec<Judgement>,
        namespaces: &[RunNamespace],
        journal: &mut Journal,
    ) -> Result<Vec<Judgement>, CommandError> {
        let judgements: Vec<Option<Judgement>> = cases
            .iter()
            .map(|case| known.iter().find(|one| one.case.as_ref() == Some(case)).cloned())
            .collect();
        let bar = bar(judgements.iter().filter(|judgement| judgement.is_none()).count());
        let shared = Mutex::new(SweepState { journal, judgements, trouble: None });
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for namespace in namespaces {
                let (bar, shared, next) = (&bar, &shared, &next);
                scope.spawn(move || self.work(cases, namespace, next, shared, bar));
            }
        });
        bar.finish_and_clear();
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        match shared.trouble {
            Some(error) => Err(failed("make a run")(error)),
            None => Ok(shared.judgements.into_iter().flatten().collect()),
        }
    }

    /// Runs a job, which takes one case after the other.
    fn work(
        &self,
        cases: &[SweepCase],
        namespace: &RunNamespace,
        next: &AtomicUsize,
        shared: &Mutex<SweepState<'_>>,
        bar: &ProgressBar,
    ) {
        let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return };
            if lock().judgements.get(index).is_some_and(Option::is_some) {
                continue;
            }
            bar.set_message(format!("{} {}", case.subject(), case.ordinal()));
            // Index 0 is the run without faults.
            let longer = if case.is_made_good() { self.patience } else { Duration::ZERO };
            let judgement =
                match self.runner.run(index + 1, namespace, RunPurpose::SweepCase(case), self.limit + longer)
                {
                    Ok(Some(run)) => self.clean.judge(case, &run),
                    Ok(None) => return,
                    Err(error) => {
                        lock().trouble.get_or_insert(error);
                        return;
                    }
                };
            let mut shared = lock();
            if let Err(error) = shared.journal.note(&judgement) {
                shared.trouble.get_or_insert(error);
                return;
            }
            if let Some(slot) = shared.judgements.get_mut(index) {
                *slot = Some(judgement);
            }
            bar.inc(1);
        }
    }
}

/// A progress bar; hidden where standard error is no terminal.
fn bar(length: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64);
    let template = "{bar:30} {pos}/{len} runs, {eta} left: {msg}";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

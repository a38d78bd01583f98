//! One run: the program, and its server if there is one, with or without something that fails.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pumice_device::settings::{CALL_REPORT, FAULT, FAULT_REPORT};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::case::{Case, RULE};
use super::child::{Group, Waited};
use super::namespace::RunNamespace;
use super::options::SweepOptions;
use super::ready::is_listening;
use super::report_file::{CallReport, Completed, ConnectionMessage, FaultReport};
use crate::run::own_program;

/// How long a server may take until it listens; one that never does is met all the same.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// How often a server is asked whether it listens.
const READY_STEP: Duration = Duration::from_millis(5);

/// A rule that changes nothing, and whose report has every completion.
const COMPLETIONS: &str = "completions";
/// One whose report has every message of connection management.
const STEPS: &str = "steps";

/// What a run is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Aim<'a> {
    /// To see what the program does without faults.
    Usual,
    /// To see which completions it has, and which steps of connection management.
    Census,
    /// To see what it does when this fails.
    Case(&'a Case),
}

impl Aim<'_> {
    /// The rule that the run adds to those of the user.
    fn rule(self) -> Option<String> {
        match self {
            Aim::Usual => None,
            Aim::Census => {
                Some(format!("late name={COMPLETIONS} time=1ns\ndelay name={STEPS} service=cm time=1ns"))
            }
            Aim::Case(case) => Some(case.rule()),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RunEnd {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// Not by itself, and was ended.
    Hang,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) end: RunEnd,
    pub(super) report: CallReport,
    /// Its completions, if they were asked for.
    pub(super) completed: Vec<Completed>,
    /// Its messages of connection management, if they were asked for.
    pub(super) messages: Vec<ConnectionMessage>,
    /// The rule of the run applied to a completion or a message.
    pub(super) met_fault: bool,
    /// What the swept program said, without sentences of this project.
    pub(super) said: Vec<String>,
    /// Sentences of this project about it.
    pub(super) explained: Vec<String>,
    pub(super) took: Duration,
}

/// What all runs have in common.
#[derive(Debug)]
pub(super) struct Runner<'a> {
    options: &'a SweepOptions,
    /// This program.
    pumice: PathBuf,
    /// A folder for the files of runs, which is removed in the end.
    folder: PathBuf,
    interrupted: &'a AtomicBool,
}

/// Files of one side of a run.
struct Files {
    report: PathBuf,
    faults: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Files {
    fn of(folder: &Path, side: &str) -> Files {
        let file = |kind: &str| folder.join(format!("{side}.{kind}"));
        let (report, faults) = (file("calls"), file("faults"));
        Files { report, faults, stdout: file("stdout"), stderr: file("stderr") }
    }

    /// What was said by the program, and by this project.
    fn said(&self) -> (Vec<String>, Vec<String>) {
        let read = |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
        let (errors, output) = (read(&self.stderr), read(&self.stdout));
        let lines = errors.lines().chain(output.lines()).map(str::trim_end);
        let lines = lines.filter(|line| !line.is_empty()).map(str::to_owned);
        lines.partition(|line| !line.starts_with("pumice: "))
    }
}

/// A run that takes place.
struct Stage<'a> {
    namespace: &'a RunNamespace,
    folder: &'a Path,
    aim: Aim<'a>,
}

impl<'a> Runner<'a> {
    /// # Errors
    /// This program cannot find itself, or no folder can be made.
    pub(super) fn new(options: &'a SweepOptions, interrupted: &'a AtomicBool) -> io::Result<Runner<'a>> {
        let folder = std::env::temp_dir().join(format!("pumice-sweep-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Runner { options, pumice: own_program().map_err(io::Error::other)?, folder, interrupted })
    }

    /// Whether the sweep was interrupted.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Runs once; `index` is of no other run. `None`: the sweep was
    /// interrupted.
    ///
    /// # Errors
    /// A process cannot be started.
    pub(super) fn run(
        &self,
        index: usize,
        namespace: &RunNamespace,
        aim: Aim<'_>,
        limit: Duration,
    ) -> io::Result<Option<Run>> {
        let folder = self.folder.join(index.to_string());
        fs::create_dir_all(&folder)?;
        let outcome = self.run_in(&Stage { namespace, folder: &folder, aim }, limit);
        // What is left there would only take room.
        let _ = fs::remove_dir_all(&folder);
        outcome
    }

    fn run_in(&self, stage: &Stage<'_>, limit: Duration) -> io::Result<Option<Run>> {
        let sides = [Files::of(stage.folder, "server"), Files::of(stage.folder, "program")];
        let [server, program] = &sides;
        let swept_server = self.options.sweep_server;
        let begin = Instant::now();
        let mut serving = match &self.options.server {
            Some(command) => {
                let words = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(command)];
                let started = self.start(stage, &words, server, swept_server)?;
                wait_until_ready(&started, &server.report)?;
                Some(started)
            }
            None => None,
        };
        let words: Vec<&OsStr> = self.options.program.iter().map(|word| word.as_os_str()).collect();
        let mut running = Some(self.start(stage, &words, program, !swept_server)?);
        let (swept, files) = if swept_server { (&mut serving, server) } else { (&mut running, program) };
        let Some(swept) = swept else { return Ok(None) };
        let end = match swept.wait(limit, self.interrupted)? {
            Waited::Ended(status) => RunEnd::of(status),
            Waited::TimedOut => RunEnd::Hang,
            Waited::Interrupted => return Ok(None),
        };
        let took = begin.elapsed();
        // Both sides end before their files are read.
        drop((serving, running));
        let faults = FaultReport::read(&files.faults);
        let (said, explained) = files.said();
        Ok(Some(Run {
            end,
            report: CallReport::read(&files.report),
            completed: faults.completed(COMPLETIONS),
            messages: faults.messages(STEPS),
            met_fault: faults.has(RULE),
            said,
            explained,
            took,
        }))
    }

    /// Starts one side through `pumice run`.
    fn start(&self, stage: &Stage<'_>, words: &[&OsStr], files: &Files, is_swept: bool) -> io::Result<Group> {
        let mut command = stage.namespace.command(self.pumice.as_os_str());
        command.args(["run", "--"]).args(words).env(CALL_REPORT, &files.report);
        if let Some(rule) = stage.aim.rule().filter(|_| is_swept) {
            // Rules that the user asks for stay.
            let others = std::env::var(FAULT).unwrap_or_default();
            command.env(FAULT, format!("{others}\n{rule}")).env(FAULT_REPORT, &files.faults);
        }
        Group::start(&mut command, &files.stdout, &files.stderr)
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until a server listens, has ended, or takes too long.
fn wait_until_ready(server: &Group, report: &Path) -> io::Result<()> {
    let until = Instant::now() + READY_PATIENCE;
    while Instant::now() < until && !is_listening(server.id(), report) {
        if server.has_ended(READY_STEP)? {
            break;
        }
    }
    Ok(())
}

impl RunEnd {
    /// What a status says. A shell says that its last program was ended by a signal with a status of its own.
    fn of(status: ExitStatus) -> RunEnd {
        const SHELL: i32 = 128;
        let crashes: [i32; 6] =
            [Signal::ILL, Signal::TRAP, Signal::ABORT, Signal::BUS, Signal::FPE, Signal::SEGV]
                .map(Signal::as_raw);
        match (status.code(), status.signal()) {
            (Some(code), _) if crashes.contains(&(code - SHELL)) => RunEnd::Signal(code - SHELL),
            (Some(code), _) => RunEnd::Exit(code),
            (None, signal) => RunEnd::Signal(signal.unwrap_or_default()),
        }
    }
}

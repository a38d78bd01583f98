//! Runs the program once, with its server if there is one, with or without a fault.

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

use super::case::{RULE, SweepCase};
use super::child::{ProcessGroup, RunNamespace, WaitOutcome, is_listening};
use super::options::SweepOptions;
use super::report_file::{CallReport, CompletedRequest, ConnectionMessage, FaultReportFile};
use crate::run::own_program;

/// Time for which a server that does not listen is awaited; afterwards the run begins all the same.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the command checks whether a server listens.
const READY_STEP: Duration = Duration::from_millis(5);

/// Name of a rule that changes nothing, and whose report has every completion.
const COMPLETIONS: &str = "completions";
/// Name of a rule that changes nothing, and whose report has every message of connection management.
const STEPS: &str = "steps";

/// The purpose of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunPurpose<'a> {
    /// Run the program without faults.
    Usual,
    /// Record its completions and its steps of connection management.
    Census,
    /// Run the program with this fault.
    SweepCase(&'a SweepCase),
}

impl RunPurpose<'_> {
    /// Returns the rule that the run adds to those of the user.
    fn rule(self) -> Option<String> {
        match self {
            RunPurpose::Usual => None,
            RunPurpose::Census => {
                Some(format!("late name={COMPLETIONS} time=1ns\ndelay name={STEPS} service=cm time=1ns"))
            }
            RunPurpose::SweepCase(case) => Some(case.rule()),
        }
    }
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RunEnd {
    /// The program ended with this exit status.
    Exit(i32),
    /// A signal ended the program.
    Signal(i32),
    /// The program did not end by itself, and was killed.
    Hang,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct SweepRun {
    pub(super) end: RunEnd,
    pub(super) report: CallReport,
    /// Completions of the program, if they were recorded.
    pub(super) completed: Vec<CompletedRequest>,
    /// Messages of connection management, if they were recorded.
    pub(super) messages: Vec<ConnectionMessage>,
    /// The rule of the run applied to a completion or a message.
    pub(super) met_fault: bool,
    /// Lines that the swept program printed, without sentences of this project.
    pub(super) said: Vec<String>,
    /// Sentences of this project about the run.
    pub(super) explained: Vec<String>,
    pub(super) took: Duration,
}

/// The common state of all runs.
#[derive(Debug)]
pub(super) struct SweepRunner<'a> {
    options: &'a SweepOptions,
    /// Path of this program.
    pumice: PathBuf,
    /// Folder for the files of runs, which is removed in the end.
    folder: PathBuf,
    interrupted: &'a AtomicBool,
}

/// The files of one side of a run.
struct RunFiles {
    report: PathBuf,
    faults: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl RunFiles {
    fn of(folder: &Path, side: &str) -> RunFiles {
        let file = |kind: &str| folder.join(format!("{side}.{kind}"));
        let (report, faults) = (file("calls"), file("faults"));
        RunFiles { report, faults, stdout: file("stdout"), stderr: file("stderr") }
    }

    /// Returns the lines of the program, and the sentences of this project.
    fn said(&self) -> (Vec<String>, Vec<String>) {
        let read = |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
        let (errors, output) = (read(&self.stderr), read(&self.stdout));
        let lines = errors.lines().chain(output.lines()).map(str::trim_end);
        let lines = lines.filter(|line| !line.is_empty()).map(str::to_owned);
        lines.partition(|line| !line.starts_with("pumice: "))
    }
}

/// A run in progress.
struct RunSetup<'a> {
    namespace: &'a RunNamespace,
    folder: &'a Path,
    purpose: RunPurpose<'a>,
}

impl<'a> SweepRunner<'a> {
    /// # Errors
    /// This program's file cannot be found, or no folder can be created.
    pub(super) fn new(options: &'a SweepOptions, interrupted: &'a AtomicBool) -> io::Result<SweepRunner<'a>> {
        let folder = std::env::temp_dir().join(format!("pumice-sweep-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(SweepRunner { options, pumice: own_program().map_err(io::Error::other)?, folder, interrupted })
    }

    /// Reports whether the sweep was interrupted.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Runs once; `index` is unique to the run. Returns `None` if the sweep was interrupted.
    ///
    /// # Errors
    /// A process cannot be started.
    pub(super) fn run(
        &self,
        index: usize,
        namespace: &RunNamespace,
        purpose: RunPurpose<'_>,
        limit: Duration,
    ) -> io::Result<Option<SweepRun>> {
        let folder = self.folder.join(index.to_string());
        fs::create_dir_all(&folder)?;
        let outcome = self.run_in(&RunSetup { namespace, folder: &folder, purpose }, limit);
        // The files are no longer needed.
        let _ = fs::remove_dir_all(&folder);
        outcome
    }

    fn run_in(&self, stage: &RunSetup<'_>, limit: Duration) -> io::Result<Option<SweepRun>> {
        let sides = [RunFiles::of(stage.folder, "server"), RunFiles::of(stage.folder, "program")];
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
            WaitOutcome::Ended(status) => RunEnd::of(status),
            WaitOutcome::TimedOut => RunEnd::Hang,
            WaitOutcome::Interrupted => return Ok(None),
        };
        let took = begin.elapsed();
        // Both sides end before their files are read.
        drop((serving, running));
        let faults = FaultReportFile::read(&files.faults);
        let (said, explained) = files.said();
        Ok(Some(SweepRun {
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

    /// Starts one side by `pumice run`.
    fn start(
        &self,
        stage: &RunSetup<'_>,
        words: &[&OsStr],
        files: &RunFiles,
        is_swept: bool,
    ) -> io::Result<ProcessGroup> {
        let mut command = stage.namespace.command(self.pumice.as_os_str());
        command.args(["run", "--"]).args(words).env(CALL_REPORT, &files.report);
        if let Some(rule) = stage.purpose.rule().filter(|_| is_swept) {
            // Rules that the user requests stay.
            let others = std::env::var(FAULT).unwrap_or_default();
            command.env(FAULT, format!("{others}\n{rule}")).env(FAULT_REPORT, &files.faults);
        }
        ProcessGroup::start(&mut command, &files.stdout, &files.stderr)
    }
}

impl Drop for SweepRunner<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until a server listens, has ended, or takes too long.
fn wait_until_ready(server: &ProcessGroup, report: &Path) -> io::Result<()> {
    let until = Instant::now() + READY_PATIENCE;
    while Instant::now() < until && !is_listening(server.id(), report) {
        if server.has_ended(READY_STEP)? {
            break;
        }
    }
    Ok(())
}

impl RunEnd {
    /// Interprets an exit status. A shell reports that a signal ended its last program by a status of its
    /// own.
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

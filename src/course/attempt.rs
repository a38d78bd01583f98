//! Runs a reader's program, or one end of it, on pumice, and collects what it left behind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pumice_device::trace::{Item, Record, TraceReader};

use crate::outcome::{CommandError, NO_PROGRAM, NOT_EXECUTABLE};
use crate::run::own_program;
use crate::sweep::child::{ProcessGroup, WaitOutcome};

/// Time that a program may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which a wait for a line checks the output.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A temporary folder for the files of runs; dropping the value removes it.
#[derive(Debug)]
pub(super) struct AttemptFolder(PathBuf);

impl AttemptFolder {
    pub(super) fn new() -> io::Result<AttemptFolder> {
        let path = std::env::temp_dir().join(format!("pumice-course-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(AttemptFolder(path))
    }
}

impl Drop for AttemptFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that is running.
#[derive(Debug)]
pub(super) struct RunningEnd {
    group: ProcessGroup,
    folder: PathBuf,
    who: String,
}

/// The outcome of a run.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Name of the program, or of the end that it was.
    pub(super) who: String,
    /// Exit status; `None` if the program was killed because it took too long.
    pub(super) ended: Option<ExitStatus>,
    /// Standard output of the program.
    pub(super) printed: String,
    /// Standard error of the program and of pumice.
    pub(super) complained: String,
    /// Kinds of findings of `--check`, each with its numbers.
    pub(super) findings: Vec<String>,
    /// Traces of its processes; empty if it used no device.
    traces: Vec<Vec<u8>>,
}

impl RunningEnd {
    /// Starts the program by `pumice run --check --trace` with these options.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(
        folder: &AttemptFolder,
        who: &str,
        options: &[&str],
        words: &[OsString],
    ) -> Result<RunningEnd, CommandError> {
        let failed = |error: &dyn std::fmt::Display| CommandError::Failed(format!("{who}: {error}"));
        let folder = folder.0.join(who.replace(' ', "-"));
        fs::create_dir(&folder).map_err(|error| failed(&error))?;
        let mut command = Command::new(own_program().map_err(|error| failed(&error))?);
        command.arg("run").args(options).args(["--check", "--check-format", "json"]);
        command.arg("--check-report").arg(folder.join("%p.check"));
        command.arg("--trace").arg(folder.join("%p.trace")).arg("--").args(words);
        let group = ProcessGroup::start(&mut command, &folder.join("stdout"), &folder.join("stderr"));
        Ok(RunningEnd { group: group.map_err(|error| failed(&error))?, folder, who: who.to_owned() })
    }

    /// Waits until the program has printed this line; returns `false` if it ended before, or if the time is
    /// up.
    ///
    /// # Errors
    /// The system cannot wait.
    pub(super) fn has_printed(&self, line: &str) -> io::Result<bool> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let has_ended = self.group.has_ended(POLL_INTERVAL)?;
            if text(&self.folder.join("stdout")).lines().any(|printed| printed.trim() == line) {
                return Ok(true);
            }
            if has_ended || Instant::now() > until {
                return Ok(false);
            }
        }
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// The program cannot be executed, or the system cannot wait.
    pub(super) fn finish(mut self) -> Result<Attempt, CommandError> {
        let ended = match self.group.wait(TIMEOUT, &AtomicBool::new(false))? {
            WaitOutcome::Ended(status) => Some(status),
            WaitOutcome::TimedOut | WaitOutcome::Interrupted => None,
        };
        let complained = text(&self.folder.join("stderr"));
        let code = ended.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
        if let Some(exit_code) = code.filter(|code| [NO_PROGRAM, NOT_EXECUTABLE].contains(code)) {
            let sentence = complained.lines().last().unwrap_or("the program cannot be run");
            let sentence = sentence.strip_prefix("pumice: ").unwrap_or(sentence).to_owned();
            return Err(CommandError::Program { sentence, exit_code });
        }
        let mut attempt = Attempt {
            ended,
            printed: text(&self.folder.join("stdout")),
            complained,
            findings: Vec::new(),
            traces: Vec::new(),
            who: self.who,
        };
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match path.extension().and_then(OsStr::to_str) {
                Some("check") => attempt.findings.extend(findings(&path)),
                Some("trace") => attempt.traces.push(fs::read(&path)?),
                _ => {}
            }
        }
        Ok(attempt)
    }
}

impl Attempt {
    /// Reports whether the program used a device.
    pub(super) fn used_device(&self) -> bool {
        !self.traces.is_empty()
    }

    /// Counts the records of all its processes that satisfy a condition.
    pub(super) fn count(&self, mut is_so: impl FnMut(&Record<'_>) -> bool) -> usize {
        let mut count = 0;
        for trace in &self.traces {
            let Ok(mut reader) = TraceReader::open(trace.as_slice()) else { continue };
            while let Ok(Some(item)) = reader.next() {
                count += usize::from(matches!(item, Item::Record(_, record) if is_so(&record)));
            }
        }
        count
    }
}

fn text(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

/// Reads the findings in a report of checks.
fn findings(report: &Path) -> Vec<String> {
    let report_json: serde_json::Value = serde_json::from_str(&text(report)).unwrap_or_default();
    let all = report_json.get("findings").and_then(serde_json::Value::as_array);
    let word = |finding: &serde_json::Value, key: &str| {
        finding.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    all.into_iter().flatten().map(|one| format!("{}: {}", word(one, "kind"), word(one, "numbers"))).collect()
}

//! A run of a reader's program, or of one end of it, on pumice, and what it left behind.

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
use crate::sweep::child::{Group, Waited};

/// How long a program may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How often a wait for a line looks at what was printed.
const LOOK: Duration = Duration::from_millis(20);

/// A folder for what runs leave behind; it goes away with the value.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("pumice-course-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that runs.
#[derive(Debug)]
pub(super) struct Running {
    group: Group,
    folder: PathBuf,
    who: String,
}

/// What a run has shown.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The program, or which end it was.
    pub(super) who: String,
    /// How it ended; `None`: it was ended because it took too long.
    pub(super) ended: Option<ExitStatus>,
    /// What it printed on standard output.
    pub(super) printed: String,
    /// What it and pumice printed on standard error.
    pub(super) complained: String,
    /// Kinds of what `--check` found, each with its numbers.
    pub(super) findings: Vec<String>,
    /// Traces of its processes; none has been written if it used no device.
    traces: Vec<Vec<u8>>,
}

impl Running {
    /// Starts the program behind `pumice run --check --trace` with these options.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(
        folder: &Folder,
        who: &str,
        options: &[&str],
        words: &[OsString],
    ) -> Result<Running, CommandError> {
        let failed = |error: &dyn std::fmt::Display| CommandError::Failed(format!("{who}: {error}"));
        let folder = folder.0.join(who.replace(' ', "-"));
        fs::create_dir(&folder).map_err(|error| failed(&error))?;
        let mut command = Command::new(own_program().map_err(|error| failed(&error))?);
        command.arg("run").args(options).args(["--check", "--check-format", "json"]);
        command.arg("--check-report").arg(folder.join("%p.check"));
        command.arg("--trace").arg(folder.join("%p.trace")).arg("--").args(words);
        let group = Group::start(&mut command, &folder.join("stdout"), &folder.join("stderr"));
        Ok(Running { group: group.map_err(|error| failed(&error))?, folder, who: who.to_owned() })
    }

    /// Waits until the program has printed this line; `false`: it ended before, or time is up.
    ///
    /// # Errors
    /// The system cannot wait.
    pub(super) fn has_printed(&self, line: &str) -> io::Result<bool> {
        let until = Instant::now() + PATIENCE;
        loop {
            let has_ended = self.group.has_ended(LOOK)?;
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
        let ended = match self.group.wait(PATIENCE, &AtomicBool::new(false))? {
            Waited::Ended(status) => Some(status),
            Waited::TimedOut | Waited::Interrupted => None,
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
    /// Whether it used a device.
    pub(super) fn used_device(&self) -> bool {
        !self.traces.is_empty()
    }

    /// How many records of all its processes are so.
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

/// What a report of checks has found.
fn findings(report: &Path) -> Vec<String> {
    let whole: serde_json::Value = serde_json::from_str(&text(report)).unwrap_or_default();
    let all = whole.get("findings").and_then(serde_json::Value::as_array);
    let word = |finding: &serde_json::Value, key: &str| {
        finding.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    all.into_iter().flatten().map(|one| format!("{}: {}", word(one, "kind"), word(one, "numbers"))).collect()
}

//! `pumice run --require`: judges the requirements on a run by its traces.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pumice_device::settings;
use pumice_device::sharing::runtime_folder;

use crate::outcome::{CommandError, CommandResult, Outcome, complain};
use crate::run::{RunOptions, run_as_child};
use crate::trace::require::{Requirements, line};
use crate::trace::timeline_of;

/// Maximum number of traces that are read.
const MAX_TRACES: usize = 4096;

/// A file that may be a trace.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FoundTrace {
    path: PathBuf,
    bytes: u64,
    changed: Option<SystemTime>,
}

/// Runs the program by `run`, and judges the requirements. Returns the program's exit code if that is not 0,
/// otherwise 1 if a requirement is not met.
pub(super) fn run(mut options: RunOptions, run: impl FnOnce(&RunOptions) -> CommandResult) -> CommandResult {
    let required = options.require.read()?;
    let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
    let own = runtime.join(format!("require-{}", std::process::id()));
    let (trace, program) = (options.trace.clone(), options.program.clone());
    run_and_judge(&required, trace, &own, &program, |trace| {
        options.trace = Some(trace.to_owned());
        run(&options)
    })
}

/// Does the same for any kind of run: `run` takes the name of the trace. Without a given one, the traces are
/// in the folder `own`, which exists for as long as they are needed.
pub(crate) fn run_and_judge(
    required: &Requirements,
    given: Option<PathBuf>,
    own: &Path,
    program: &[OsString],
    run: impl FnOnce(&Path) -> CommandResult,
) -> CommandResult {
    if std::env::var_os(settings::TRACE).is_some() && given.is_none() {
        return Err(CommandError::Usage(format!(
            "--require needs the trace of this run alone: give --trace FILE, and unset {}",
            settings::TRACE
        )));
    }
    let is_own = given.is_none();
    if is_own {
        make_private(own)?;
    }
    let file = given.unwrap_or_else(|| own.join("%p.trace"));
    let before = traces(&file);
    let program = program.first().map(|name| name.to_string_lossy().into_owned());
    let ended = run(&file);
    let judged = judge(required, &file, &before, &program.unwrap_or_default());
    if is_own {
        // A folder that cannot be removed is left in the user's own temporary folder.
        let _ = fs::remove_dir_all(own);
    }
    ended?;
    judged
}

/// Runs the program as a child process and waits for it; used when no other option already does that.
pub(super) fn run_with_traces(options: &RunOptions) -> CommandResult {
    match run_as_child(options)? {
        0 => Ok(Outcome::Good),
        exit_code => Err(CommandError::ProgramEnded { exit_code }),
    }
}

/// Makes a new folder that only this user can read.
fn make_private(folder: &Path) -> Result<(), CommandError> {
    // An earlier process with this process id may have left one.
    let _ = fs::remove_dir_all(folder);
    fs::DirBuilder::new().mode(0o700).create(folder).map_err(|error| {
        CommandError::Failed(format!("{} cannot be made: {error}: make room", folder.display()))
    })
}

/// Lists the traces that processes write under this name.
pub(crate) fn traces_of(file: &Path) -> Vec<PathBuf> {
    traces(file).into_iter().map(|one| one.path).take(MAX_TRACES).collect()
}

fn judge(required: &Requirements, file: &Path, before: &[FoundTrace], program: &str) -> CommandResult {
    // A file that existed before and has not changed belongs to another run.
    let is_new = |one: &FoundTrace| !before.contains(one);
    let files: Vec<PathBuf> =
        traces(file).into_iter().filter(is_new).map(|one| one.path).take(MAX_TRACES).collect();
    let verdicts = required.judge(&timeline_of(&files)?);
    for verdict in &verdicts {
        complain(&line(verdict));
    }
    required.report(program, &verdicts)?;
    let failed = verdicts.iter().filter(|verdict| !verdict.is_met).count();
    match failed {
        0 => Ok(Outcome::Good),
        failed => Err(CommandError::Failed(format!(
            "the program ended well, and {failed} of {} requirements are not met",
            verdicts.len()
        ))),
    }
}

/// Lists the traces that processes write under this name: with process ids for `%p`, and appended where
/// several processes would write to one file.
fn traces(file: &Path) -> Vec<FoundTrace> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = file.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Vec::new();
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let found = |entry: fs::DirEntry| {
        let about = entry.metadata().ok()?;
        Some(FoundTrace { path: entry.path(), bytes: about.len(), changed: about.modified().ok() })
    };
    let named = entries.filter(|entry| is_of(&entry.file_name().to_string_lossy(), &name));
    let mut found: Vec<FoundTrace> = named.filter_map(found).collect();
    found.sort();
    found
}

/// Reports whether a file has this name, with digits for `%p`, or with a number before its extension.
fn is_of(entry: &str, name: &str) -> bool {
    let between = |front: &str, back: &str| {
        let middle = entry.strip_prefix(front).and_then(|rest| rest.strip_suffix(back));
        middle.is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some((front, back)) = name.split_once("%p") {
        return between(front, back);
    }
    let run_with_traces = match name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) {
        Some((stem, extension)) => between(&format!("{stem}."), &format!(".{extension}")),
        None => between(&format!("{name}."), ""),
    };
    entry == name || run_with_traces
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn traces_of_a_name_are_known() {
        for (entry, name, is) in [
            ("12.trace", "%p.trace", true),
            ("a-12.trace", "a-%p.trace", true),
            ("a-x.trace", "a-%p.trace", false),
            ("t", "t", true),
            ("t.17", "t", true),
            ("t.old", "t", false),
            ("t.17.trace", "t.trace", true),
            ("t.x.trace", "t.trace", false),
            ("u", "t", false),
        ] {
            assert_eq!(is_of(entry, name), is, "{entry} {name}");
        }
    }
}

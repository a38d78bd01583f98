//! Runs the program at one point, in a process of its own, and finds its own figure in what it prints.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pumice_device::outside::output_file::create_private_folder;
use pumice_device::sharing::runtime_folder;

use super::super::ci_engines;
use super::super::options::VaryOptions;
use super::super::outcome::RunOutcome;
use super::points::{Axis, Point, PointResult};
use crate::outcome::CommandError;
use crate::run::own_program;
use crate::sweep::child::{ProcessGroup, WaitOutcome};

/// Returns the figure with this title: the number in the column of the last table that has it, or else the
/// last number behind it in a line.
pub(super) fn of(output: &str, title: &str) -> Option<f64> {
    let mut found = None;
    let mut column = None;
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == title) {
            column = Some(at);
        }
        let is_row = words.first().is_some_and(|word| word.parse::<f64>().is_ok());
        match column.and_then(|column| words.get(column)).filter(|_| is_row) {
            Some(cell) => found = cell.parse().ok().or(found),
            None => found = behind(line, title).or(found),
        }
    }
    found
}

/// Returns the first number in a line behind a text.
fn behind(line: &str, title: &str) -> Option<f64> {
    let (_, rest) = line.split_once(title)?;
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let from = rest.find(|c: char| c.is_ascii_digit())?;
    let number = rest.get(from..)?;
    let end = number.find(|c| !is_part(c)).unwrap_or(number.len());
    let is_negative = rest.get(..from)?.ends_with('-');
    let value: f64 = number.get(..end)?.trim_end_matches('.').parse().ok()?;
    Some(if is_negative { -value } else { value })
}

/// Most bytes of a program's output that are searched for the figure.
const MAX_OUTPUT: usize = 1 << 24;

/// Starts runs.
pub(super) struct PointRunner<'a> {
    options: &'a VaryOptions,
    axes: &'a [Axis],
    own: PathBuf,
    /// Folder with the files of runs, which is removed with the runner.
    folder: PathBuf,
    interrupted: Arc<AtomicBool>,
}

impl<'a> PointRunner<'a> {
    pub(super) fn new(options: &'a VaryOptions, axes: &'a [Axis]) -> Result<PointRunner<'a>, CommandError> {
        let own = own_program().map_err(CommandError::Failed)?;
        let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
        let folder = runtime.join(format!("vary-{}", std::process::id()));
        create_private_folder(&folder)
            .map_err(|error| CommandError::Failed(format!("{} cannot be made: {error}", folder.display())))?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // Without the handler, ^C ends the command without removing its folder.
            let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        }
        Ok(PointRunner { options, axes, own, folder, interrupted })
    }

    /// Runs the program at a point. `number` is that of the point.
    ///
    /// # Errors
    /// The run cannot be started, or was interrupted.
    pub(super) fn run(&self, number: usize, point: &Point) -> Result<PointResult, CommandError> {
        let VaryOptions { model, addr, timeout, program, .. } = self.options;
        let file = |kind: &str| self.folder.join(format!("{number}-{kind}"));
        let (outcome, output, said) = (file("outcome"), file("output"), file("said"));
        let values: Vec<String> =
            self.axes.iter().zip(point).map(|(axis, value)| axis.written(*value)).collect();
        let mut command = Command::new(&self.own);
        command.args(["world", "--quiet", "--model", model]);
        command.arg("--outcome").arg(&outcome).arg("--output").arg(&output);
        command.env_remove(ci_engines::INDEX).env_remove(ci_engines::COUNT);
        for (axis, value) in self.axes.iter().zip(&values) {
            command.arg(format!("--{}", axis.name)).arg(value);
        }
        if let Some(addr) = addr {
            command.arg("--addr").arg(addr);
        }
        command.arg("--").args(program);
        let failed =
            |error: std::io::Error| CommandError::Failed(format!("a run cannot be started: {error}"));
        let mut group = ProcessGroup::start(&mut command, "/dev/null".as_ref(), &said).map_err(failed)?;
        let waited = group.wait(Duration::from_secs(*timeout), &self.interrupted).map_err(failed)?;
        drop(group);
        let late = || format!("no end within {timeout} s of real time");
        let ended = match waited {
            WaitOutcome::Interrupted => return Err(CommandError::Failed("interrupted".to_owned())),
            WaitOutcome::TimedOut => None,
            WaitOutcome::Ended(_) => Some(RunOutcome::read(&outcome).ok_or_else(|| {
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                CommandError::Failed(format!("a run did not begin: {}", said.trim()))
            })?),
        };
        let (world_ns, is_certified) =
            ended.as_ref().map_or((0, false), |ended| (ended.virtual_ns, ended.is_certified));
        let figure =
            ended.as_ref().filter(|ended| !ended.is_failure).and_then(|_| match &self.options.figure {
                None => Some(world_ns as f64 / 1e3),
                Some(title) => {
                    let bytes = std::fs::read(&output).unwrap_or_default();
                    let text =
                        String::from_utf8_lossy(bytes.get(..MAX_OUTPUT.min(bytes.len()))?).into_owned();
                    of(&text, title)
                }
            });
        let end = match ended {
            None => late(),
            Some(ended) if !ended.is_failure && figure.is_none() => "no such figure is printed".to_owned(),
            Some(ended) => ended.end,
        };
        for kind in ["outcome", "output", "said"] {
            let _ = std::fs::remove_file(file(kind));
        }
        Ok(PointResult { values, figure, world_ns, end, is_certified })
    }
}

impl Drop for PointRunner<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_figure_is_in_a_column_or_behind_its_title() {
        let table =
            " #bytes #iterations    t_min[usec]    t_typical[usec]\n 2 100 1.25 1.27\n 4 100 1.3 1.31\n---\n";
        assert_eq!(of(table, "t_typical[usec]"), Some(1.31));
        assert_eq!(of(table, "t_max[usec]"), None);
        assert_eq!(of("took: 3 ms\nlatency = 12.5us (mean)\n", "latency"), Some(12.5));
        assert_eq!(of("change: -4.\n", "change"), Some(-4.0));
        assert_eq!(of("latency: none\n", "latency"), None);
    }
}

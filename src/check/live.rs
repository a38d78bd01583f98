//! `pumice check live`: reports verbs mistakes of running programs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use pumice_device::check::{JUDGED_LIVE, KINDS};
use pumice_device::findings::Level;
use pumice_device::record_orders::RecordCommand;
use pumice_device::settings::Marks;
use pumice_device::sharing::runtime_folder;
use serde::Serialize;
use serde_json::Value;

use crate::observe::{
    LiveDevice, NoOutput, ProcessSelection, RecordingTime, live_time, milliseconds, nanoseconds, plain,
};
use crate::outcome::{CommandError, CommandResult, Outcome};

/// Time that a process may take beyond the duration to write its report, because it resolves symbols.
const GRACE: Duration = Duration::from_secs(20);
/// Maximum size of a report, in bytes.
const MAX_REPORT_BYTES: usize = 64 << 20;

/// Options of `pumice check live`.
#[derive(Debug, Args)]
pub(crate) struct LiveCheckOptions {
    /// For how long, as in 500ms or 5s; a signal (ctrl-C) ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = live_time)]
    time: Duration,
    #[command(flatten)]
    running: ProcessSelection,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The result of checking a device's process.
#[derive(Debug, Serialize)]
struct CheckedDevice {
    #[serde(flatten)]
    of: LiveDevice,
    /// Reason why it was not checked, or not to the end.
    problem: Option<String>,
    /// The report as JSON; `None` if there is none, or if it is text.
    report: Option<Value>,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    worst: Option<Level>,
}

/// Runs the command.
pub(crate) fn run(options: &LiveCheckOptions, out: &mut dyn Write) -> CommandResult {
    let chosen = options.running.find().map_err(CommandError::Failed)?;
    let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
    let pattern = runtime.join(format!("live-{}-%p-%d", std::process::id()));
    let format = if options.json { "json" } else { "text" }.to_owned();
    let for_ms = milliseconds(options.time);
    let order = RecordCommand::Check { file: pattern.display().to_string(), for_ms, format };
    let time = RecordingTime { time: options.time, grace: GRACE };
    let recordings = options.running.record(&chosen, &order, time)?;
    let until = recordings.until;
    let devices = recordings.devices.into_iter();
    let all: Vec<CheckedDevice> =
        devices.map(|(of, file)| CheckedDevice::of(of, file, until, options.json)).collect();
    if options.json {
        json(options, &all, out)?
    } else {
        text(&all, out)?
    }
    let is_bad =
        |one: &CheckedDevice| one.problem.is_some() || one.worst.is_some_and(|worst| worst >= Level::Warning);
    Ok(if all.iter().any(is_bad) { Outcome::Bad } else { Outcome::Good })
}

impl CheckedDevice {
    /// Waits for the report of a device's process, reads it, and removes it.
    fn of(of: LiveDevice, file: Result<PathBuf, String>, until: Instant, is_json: bool) -> CheckedDevice {
        let mut checked = CheckedDevice { of, problem: None, report: None, text: String::new(), worst: None };
        let file = match file {
            Ok(file) => file,
            Err(problem) => {
                checked.problem = Some(problem);
                return checked;
            }
        };
        match checked.of.wait_for(&file, until, report) {
            Ok((worst, report)) => {
                checked.worst = worst;
                if is_json {
                    checked.report = serde_json::from_str(&report).ok();
                } else {
                    checked.text = report.lines().map(|line| plain(line) + "\n").collect();
                }
            }
            Err(no_output) => {
                let why = match no_output {
                    NoOutput::Late => "it is stopped, or its disk is full",
                    NoOutput::Ended => "it ended before",
                };
                checked.problem = Some(format!("{why}: there is no report"));
            }
        }
        // The name may belong to another process's file by now, or the file may be gone.
        let _ = fs::remove_file(file);
        checked
    }
}

/// Reads a complete report; returns it with the level of the worst finding in it.
fn report(file: &Path) -> Option<(Option<Level>, String)> {
    let bytes = fs::read(file).ok().filter(|bytes| bytes.len() <= MAX_REPORT_BYTES)?;
    let (marks, report) = Marks::of_report(&bytes)?;
    Some((marks.worst, String::from_utf8_lossy(report).into_owned()))
}

/// Returns the kinds of findings that only calls reveal.
fn not_judged() -> Vec<&'static str> {
    let is_judged = |name: &str| JUDGED_LIVE.iter().any(|one| one.name == name);
    KINDS.iter().map(|kind| kind.name).filter(|name| !is_judged(name)).collect()
}

fn text(all: &[CheckedDevice], out: &mut dyn Write) -> Result<(), CommandError> {
    for one in all {
        match &one.problem {
            Some(problem) => writeln!(out, "{} was not checked: {problem}", one.of)?,
            None => writeln!(out, "{}:\n{}", one.of, one.text.trim_end())?,
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "Not judged in programs that run already, but by `pumice check -- PROGRAM`: {}",
        not_judged().join(", ")
    )?;
    Ok(())
}

fn json(options: &LiveCheckOptions, all: &[CheckedDevice], out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct LiveCheckReport<'a> {
        for_ns: u64,
        programs: &'a [CheckedDevice],
        not_judged: Vec<&'static str>,
    }
    let document =
        LiveCheckReport { for_ns: nanoseconds(options.time), programs: all, not_judged: not_judged() };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)?;
    Ok(())
}

//! `pumice check live`: what programs that run already do wrong.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use pumice_device::check::{JUDGED_LIVE, KINDS};
use pumice_device::findings::Level;
use pumice_device::record_orders::RecordOrder;
use pumice_device::settings::Marks;
use pumice_device::share::runtime_folder;
use serde::Serialize;
use serde_json::Value;

use crate::observe::{
    LiveDevice, RecordingTime, Running, Silence, live_time, milliseconds, nanoseconds, plain,
};
use crate::outcome::{CommandError, CommandResult, Outcome};

/// How long a process may take to write its report, beyond its time: it looks for symbols.
const GRACE: Duration = Duration::from_secs(20);
/// The longest report.
const MAX_REPORT_BYTES: usize = 64 << 20;

/// Options of `pumice check live`.
#[derive(Debug, Args)]
pub(crate) struct LiveOptions {
    /// For how long, as in 500ms or 5s; a signal (ctrl-C) ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = live_time)]
    time: Duration,
    #[command(flatten)]
    running: Running,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What was found in a device's process.
#[derive(Debug, Serialize)]
struct Checked {
    #[serde(flatten)]
    of: LiveDevice,
    /// Why it was not checked, or not to the end.
    problem: Option<String>,
    /// None: there is none, or it is text.
    report: Option<Value>,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    worst: Option<Level>,
}

/// Runs the command.
pub(crate) fn run(options: &LiveOptions, out: &mut dyn Write) -> CommandResult {
    let chosen = options.running.find().map_err(CommandError::Failed)?;
    let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
    let pattern = runtime.join(format!("live-{}-%p-%d", std::process::id()));
    let format = if options.json { "json" } else { "text" }.to_owned();
    let for_ms = milliseconds(options.time);
    let order = RecordOrder::Check { file: pattern.display().to_string(), for_ms, format };
    let time = RecordingTime { time: options.time, grace: GRACE };
    let recordings = options.running.record(&chosen, &order, time)?;
    let until = recordings.until;
    let devices = recordings.devices.into_iter();
    let all: Vec<Checked> = devices.map(|(of, file)| Checked::of(of, file, until, options.json)).collect();
    if options.json {
        json(options, &all, out)?
    } else {
        text(&all, out)?
    }
    let is_bad =
        |one: &Checked| one.problem.is_some() || one.worst.is_some_and(|worst| worst >= Level::Warning);
    Ok(if all.iter().any(is_bad) { Outcome::Bad } else { Outcome::Good })
}

impl Checked {
    /// Of a device's process: waits for its report, which is removed.
    fn of(of: LiveDevice, file: Result<PathBuf, String>, until: Instant, is_json: bool) -> Checked {
        let mut checked = Checked { of, problem: None, report: None, text: String::new(), worst: None };
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
            Err(silence) => {
                let why = match silence {
                    Silence::Late => "it is stopped, or its disk is full",
                    Silence::Ended => "it ended before",
                };
                checked.problem = Some(format!("{why}: there is no report"));
            }
        }
        // It may be another one's by now, or gone.
        let _ = fs::remove_file(file);
        checked
    }
}

/// A whole report, and the level of the worst that is in it.
fn report(file: &Path) -> Option<(Option<Level>, String)> {
    let bytes = fs::read(file).ok().filter(|bytes| bytes.len() <= MAX_REPORT_BYTES)?;
    let (marks, report) = Marks::of_report(&bytes)?;
    Some((marks.worst, String::from_utf8_lossy(report).into_owned()))
}

/// The kinds that only calls tell of.
fn not_judged() -> Vec<&'static str> {
    let is_judged = |name: &str| JUDGED_LIVE.iter().any(|one| one.name == name);
    KINDS.iter().map(|kind| kind.name).filter(|name| !is_judged(name)).collect()
}

fn text(all: &[Checked], out: &mut dyn Write) -> Result<(), CommandError> {
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

fn json(options: &LiveOptions, all: &[Checked], out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct Whole<'a> {
        for_ns: u64,
        programs: &'a [Checked],
        not_judged: Vec<&'static str>,
    }
    let whole = Whole { for_ns: nanoseconds(options.time), programs: all, not_judged: not_judged() };
    serde_json::to_writer_pretty(&mut *out, &whole)?;
    writeln!(out)?;
    Ok(())
}

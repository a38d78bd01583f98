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
use pumice_device::share::{Sharer, runtime_folder};
use serde::Serialize;
use serde_json::Value;

use crate::observe::{Chosen, Interrupt, Running, live_time, plain, program};
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::printed::complain;

/// How long a process may take to write its report, beyond its time: it looks for symbols.
const GRACE: Duration = Duration::from_secs(20);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(10);
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
    pid: u32,
    program: String,
    tag: String,
    device: String,
    /// Why it was not checked, or not to the end.
    problem: Option<String>,
    /// None: there is none, or it is text.
    report: Option<Value>,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    worst: Option<Level>,
    #[serde(skip)]
    file: Option<PathBuf>,
    #[serde(skip)]
    sharer: Sharer,
}

/// Runs the command.
pub(crate) fn run(options: &LiveOptions, out: &mut dyn Write) -> CommandResult {
    let chosen = options.running.find().map_err(CommandError::Failed)?;
    let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
    let pattern = runtime.join(format!("live-{}-%p-%d", std::process::id()));
    let interrupt = Interrupt::new()
        .map_err(|error| CommandError::Failed(format!("signals cannot be waited for: {error}")))?;
    let mut all = begin(options, &pattern, &chosen)?;
    let begun = Instant::now();
    if all.iter().any(|one| one.file.is_some()) {
        let was_interrupted = interrupt.wait_all(options.time).map_err(CommandError::Output)?;
        if was_interrupted {
            end(options, &all);
        }
        let until = if was_interrupted { Instant::now() } else { begun + options.time } + GRACE;
        all.iter_mut().for_each(|one| one.look(until, options.json));
    }
    if options.json {
        json(options, &all, out)?
    } else {
        text(&all, out)?
    }
    let is_bad =
        |one: &Checked| one.problem.is_some() || one.worst.is_some_and(|worst| worst >= Level::Warning);
    Ok(if all.iter().any(is_bad) { Outcome::Bad } else { Outcome::Good })
}

fn begin(options: &LiveOptions, pattern: &Path, chosen: &[Chosen]) -> Result<Vec<Checked>, CommandError> {
    let for_ms = u64::try_from(options.time.as_millis()).unwrap_or(u64::MAX);
    let format = if options.json { "json" } else { "text" }.to_owned();
    let order = RecordOrder::Check { file: pattern.display().to_string(), for_ms, format };
    let answers = options.running.give(&order, chosen).map_err(CommandError::Failed)?;
    let checked = chosen.iter().zip(answers).map(|(one, answer)| {
        let (file, problem) = match answer {
            Ok(answer) => (Some(PathBuf::from(answer.file)), None),
            Err(problem) => (None, Some(problem)),
        };
        Checked {
            pid: one.sharer.pid,
            program: one.program.clone(),
            tag: one.tag.clone(),
            device: one.device.clone(),
            problem,
            report: None,
            text: String::new(),
            worst: None,
            file,
            sharer: one.sharer,
        }
    });
    Ok(checked.collect())
}

/// Has the checks end. One that does not hear of it ends by itself.
fn end(options: &LiveOptions, all: &[Checked]) {
    for one in all {
        let Some(file) = one.file.as_ref().and_then(|file| file.to_str()) else { continue };
        if let Err(error) = options.running.end(file, one.sharer) {
            complain(&CommandError::Failed(error));
        }
    }
}

impl Checked {
    /// Looks until the report is whole, but not for longer than until then.
    fn look(&mut self, until: Instant, is_json: bool) {
        let Some(file) = &self.file else { return };
        loop {
            let runs = program(self.pid).is_some();
            let bytes = fs::read(file).unwrap_or_default();
            if let Some((marks, report)) =
                Marks::of_report(&bytes).filter(|_| bytes.len() <= MAX_REPORT_BYTES)
            {
                let report = String::from_utf8_lossy(report);
                self.worst = marks.worst;
                if is_json {
                    self.report = serde_json::from_str(&report).ok();
                } else {
                    self.text = report.lines().map(|line| plain(line) + "\n").collect();
                }
                break;
            }
            if !runs || Instant::now() >= until {
                let why = if runs { "it is stopped, or its disk is full" } else { "it ended before" };
                self.problem = Some(format!("{why}: there is no report"));
                break;
            }
            std::thread::sleep(LOOK);
        }
        // It may be another one's by now, or gone.
        let _ = fs::remove_file(file);
    }
}

/// The kinds that only calls tell of.
fn not_judged() -> Vec<&'static str> {
    let is_judged = |name: &str| JUDGED_LIVE.iter().any(|one| one.name == name);
    KINDS.iter().map(|kind| kind.name).filter(|name| !is_judged(name)).collect()
}

fn text(all: &[Checked], out: &mut dyn Write) -> Result<(), CommandError> {
    for one in all {
        let title = format!("process {} ({}), device {}", one.pid, one.program, one.device);
        match &one.problem {
            Some(problem) => writeln!(out, "{title} was not checked: {problem}")?,
            None => writeln!(out, "{title}:\n{}", one.text.trim_end())?,
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
    let for_ns = u64::try_from(options.time.as_nanos()).unwrap_or(u64::MAX);
    serde_json::to_writer_pretty(&mut *out, &Whole { for_ns, programs: all, not_judged: not_judged() })?;
    writeln!(out)?;
    Ok(())
}

//! `pumice trace live`: traces of programs that run already.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use pumice_device::ground::quantity;
use pumice_device::record_orders::RecordOrder;
use pumice_device::share::Sharer;
use pumice_device::trace::{DEFAULT_LIMIT_BYTES, TraceHeader, TraceReader, create_private};
use serde::Serialize;

use crate::observe::{Chosen, Given, Interrupt, Running, live_time, plain, program};
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::printed::complain;

/// How long a process may take to write what it has heard, beyond its time.
const GRACE: Duration = Duration::from_secs(3);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// Options of `pumice trace live`.
#[derive(Debug, Args)]
pub(crate) struct LiveOptions {
    /// For how long, as in 500ms or 5s; a signal (ctrl-C) ends it sooner
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = live_time)]
    time: Duration,
    /// The file, or one for each process: %p in its name stands for the process number, %d for the device
    #[arg(long, short, alias = "output", value_name = "FILE", default_value = "live.%p.trace")]
    out: PathBuf,
    /// Bytes that each file has at most, as in 64MiB [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    limit: Option<u64>,
    #[command(flatten)]
    running: Running,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> Result<u64, String> {
    let least = 1 << 16;
    quantity::size(text)
        .filter(|bytes| *bytes >= least)
        .ok_or_else(|| format!("\"{text}\" is not a size from 64KiB on: write it as 64MiB or 1GiB"))
}

/// What came of the recording of a device.
#[derive(Debug, Serialize)]
struct Recorded {
    pid: u32,
    program: String,
    tag: String,
    device: String,
    /// None: nothing was recorded.
    file: Option<PathBuf>,
    bytes: u64,
    omitted_records: u64,
    lost_records: u64,
    /// Everything was written.
    is_whole: bool,
    /// Why not.
    problem: Option<String>,
    #[serde(skip)]
    sharer: Sharer,
}

/// Runs the command.
pub(super) fn run(options: &LiveOptions, out: &mut dyn Write) -> CommandResult {
    let chosen = options.running.find().map_err(CommandError::Failed)?;
    let pattern = pattern(&options.out, &chosen)?;
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
        all.iter_mut().for_each(|one| one.look(until));
    }
    if options.json {
        json(options, &all, out)?
    } else {
        text(&all, out)?
    }
    Ok(if all.iter().all(|one| one.problem.is_none()) { Outcome::Good } else { Outcome::Bad })
}

/// The pattern of the files, with what it must have so that no two processes write to one file.
fn pattern(file: &Path, chosen: &[Chosen]) -> Result<String, CommandError> {
    let pids: Vec<u32> = chosen.iter().map(|one| one.sharer.pid).collect();
    let are_several = pids.iter().any(|pid| Some(pid) != pids.first());
    let have_several =
        pids.iter().enumerate().any(|(index, pid)| pids.iter().skip(index + 1).any(|other| other == pid));
    let whole = std::path::absolute(file)
        .map_err(|error| CommandError::Failed(format!("the current folder is not known: {error}")))?;
    let Some(mut pattern) = whole.to_str().map(str::to_owned) else {
        let sentence = format!("{}: the name of the file is not UTF-8: name another one", file.display());
        return Err(CommandError::Usage(sentence));
    };
    for (mark, is_wanted) in [("%p", are_several), ("%d", have_several)] {
        if is_wanted && !pattern.contains(mark) {
            pattern = beside(&pattern, mark);
        }
    }
    // What keeps a file from being written is said before a program is asked.
    if let Some(first) = chosen.first() {
        let path = pattern.replace("%p", &first.sharer.pid.to_string()).replace("%d", &first.device);
        create_private(Path::new(&path))
            .map_err(|error| CommandError::Failed(format!("{path} cannot be written: {error}")))?;
    }
    Ok(pattern)
}

/// "a.trace" becomes "a.%p.trace".
fn beside(pattern: &str, mark: &str) -> String {
    let path = Path::new(pattern);
    let end = path.extension().map(|end| end.to_string_lossy().into_owned());
    let stem =
        end.as_ref().map_or(pattern, |end| pattern.strip_suffix(&format!(".{end}")).unwrap_or(pattern));
    let end = end.map_or_else(String::new, |end| format!(".{end}"));
    format!("{stem}.{mark}{end}")
}

/// Has the recordings begin.
fn begin(options: &LiveOptions, pattern: &str, chosen: &[Chosen]) -> Result<Vec<Recorded>, CommandError> {
    let for_ms = u64::try_from(options.time.as_millis()).unwrap_or(u64::MAX);
    let limit_bytes = options.limit.unwrap_or(DEFAULT_LIMIT_BYTES);
    let order = RecordOrder::Trace { file: pattern.to_owned(), for_ms, limit_bytes };
    let answers = options.running.give(&order, chosen).map_err(CommandError::Failed)?;
    Ok(chosen.iter().zip(answers).map(|(one, answer)| recorded(one, answer)).collect())
}

fn recorded(one: &Chosen, answer: Given) -> Recorded {
    let (file, problem) = match answer {
        Ok(answer) => (Some(PathBuf::from(answer.file)), None),
        Err(problem) => (None, Some(problem)),
    };
    Recorded {
        pid: one.sharer.pid,
        program: one.program.clone(),
        tag: one.tag.clone(),
        device: one.device.clone(),
        file,
        bytes: 0,
        omitted_records: 0,
        lost_records: 0,
        is_whole: false,
        problem,
        sharer: one.sharer,
    }
}

/// Has the recordings end. One that does not hear of it ends by itself.
fn end(options: &LiveOptions, all: &[Recorded]) {
    for one in all {
        let Some(file) = one.file.as_ref().and_then(|file| file.to_str()) else { continue };
        if let Err(error) = options.running.end(file, one.sharer) {
            complain(&CommandError::Failed(error));
        }
    }
}

impl Recorded {
    /// Looks until the file has all, but not for longer than until then.
    fn look(&mut self, until: Instant) {
        let Some(file) = &self.file else { return };
        loop {
            let head = head(file);
            let runs = program(self.pid).is_some();
            let is_late = Instant::now() >= until;
            match head {
                Ok((header, bytes)) if header.is_ended || !runs || is_late => {
                    self.bytes = bytes;
                    (self.omitted_records, self.lost_records) = (header.omitted_records, header.lost_records);
                    self.is_whole = header.is_ended;
                    if !header.is_ended {
                        let why = if runs { "it is stopped" } else { "it was killed" };
                        let sentence = format!("{why}: the trace has what it had written before");
                        self.problem = Some(sentence);
                    }
                    return;
                }
                Err(why) if is_late || !runs => {
                    self.problem = Some(why);
                    return;
                }
                _ => std::thread::sleep(LOOK),
            }
        }
    }
}

/// What the head of a trace says, and how long the file is.
fn head(path: &Path) -> Result<(TraceHeader, u64), String> {
    let said = |error: &dyn std::fmt::Display| format!("{} cannot be read: {error}", path.display());
    let file = File::open(path).map_err(|error| said(&error))?;
    let bytes = file.metadata().map_err(|error| said(&error))?.len();
    let reader = TraceReader::open(file).map_err(|error| said(&error))?;
    Ok((reader.header().clone(), bytes))
}

/// A path as it is shortest from here.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let short = here.as_ref().and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path);
    plain(&short.display().to_string())
}

fn text(all: &[Recorded], out: &mut dyn Write) -> Result<(), CommandError> {
    let mut names = Vec::new();
    for one in all {
        let title = format!("process {} ({}), device {}", one.pid, one.program, one.device);
        if let Some(file) = &one.file {
            names.push(shown(file));
            writeln!(out, "{}: {title}: {} bytes", shown(file), one.bytes)?;
        }
        if let Some(problem) = &one.problem {
            let part = if one.file.is_some() { "not recorded to the end" } else { "not recorded" };
            writeln!(out, "{title} was {part}: {problem}")?;
        }
        let missing = one.omitted_records + one.lost_records;
        if missing > 0 {
            let (omitted, lost) = (one.omitted_records, one.lost_records);
            writeln!(
                out,
                "  {missing} records are missing in it: {omitted} had no room (give it more with --limit), \
                 {lost} came faster than they could be written"
            )?;
        }
    }
    if !names.is_empty() {
        writeln!(out, "\nWhere the time went: pumice trace why {}", names.join(" "))?;
    }
    Ok(())
}

fn json(options: &LiveOptions, all: &[Recorded], out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct Whole<'a> {
        for_ns: u64,
        traces: &'a [Recorded],
    }
    let for_ns = u64::try_from(options.time.as_nanos()).unwrap_or(u64::MAX);
    serde_json::to_writer_pretty(&mut *out, &Whole { for_ns, traces: all })?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_before_the_end_of_a_name() {
        assert_eq!(beside("/a.b/live.trace", "%p"), "/a.b/live.%p.trace");
        assert_eq!(beside("/a.b/live", "%p"), "/a.b/live.%p");
    }

    #[test]
    fn times_and_sizes_have_units_and_bounds() {
        assert_eq!(live_time("500ms"), Ok(Duration::from_millis(500)));
        assert!(live_time("1ms").is_err() && live_time("5").is_err());
        assert_eq!(size("64KiB"), Ok(1 << 16));
        assert!(size("1").is_err() && size("x").is_err());
    }
}

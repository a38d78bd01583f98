//! `pumice trace live`: records traces of running programs.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use pumice_device::platform::quantity;
use pumice_device::record_orders::RecordCommand;
use pumice_device::trace::{DEFAULT_LIMIT_BYTES, TraceHeader, TraceReader, create_private};
use serde::Serialize;

use crate::observe::{
    LiveDevice, NoOutput, ProcessSelection, RecordingTime, SelectedDevice, live_time, milliseconds,
    nanoseconds, plain,
};
use crate::outcome::{CommandError, CommandResult, Outcome};

/// Time that a process may take, beyond the duration, to write what it has collected.
const GRACE: Duration = Duration::from_secs(3);

/// Options of `pumice trace live`.
#[derive(Debug, Args)]
pub(crate) struct LiveTraceOptions {
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
    running: ProcessSelection,
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

/// The result of recording a device.
#[derive(Debug, Serialize)]
struct RecordedTrace {
    #[serde(flatten)]
    of: LiveDevice,
    /// File of the trace; `None` if nothing was recorded.
    file: Option<PathBuf>,
    bytes: u64,
    omitted_records: u64,
    lost_records: u64,
    /// The trace is complete.
    is_whole: bool,
    /// Reason why it is not complete.
    problem: Option<String>,
}

/// Runs the command.
pub(super) fn run(options: &LiveTraceOptions, out: &mut dyn Write) -> CommandResult {
    let chosen = options.running.find().map_err(CommandError::Failed)?;
    let file = pattern(&options.out, &chosen)?;
    let limit_bytes = options.limit.unwrap_or(DEFAULT_LIMIT_BYTES);
    let order = RecordCommand::Trace { file, for_ms: milliseconds(options.time), limit_bytes };
    let time = RecordingTime { time: options.time, grace: GRACE };
    let recordings = options.running.record(&chosen, &order, time)?;
    let until = recordings.until;
    let all: Vec<RecordedTrace> =
        recordings.devices.into_iter().map(|(of, file)| RecordedTrace::of(of, file, until)).collect();
    if options.json {
        json(options, &all, out)?
    } else {
        text(&all, out)?
    }
    Ok(if all.iter().all(|one| one.problem.is_none()) { Outcome::Good } else { Outcome::Bad })
}

/// Returns the pattern of the files, with the marks that it needs so that no two processes write to one file.
fn pattern(file: &Path, chosen: &[SelectedDevice]) -> Result<String, CommandError> {
    let pids: Vec<u32> = chosen.iter().map(|one| one.sharer.pid).collect();
    let are_several = pids.iter().any(|pid| Some(pid) != pids.first());
    let have_several =
        pids.iter().enumerate().any(|(index, pid)| pids.iter().skip(index + 1).any(|other| other == pid));
    let absolute_path = std::path::absolute(file)
        .map_err(|error| CommandError::Failed(format!("the current folder is not known: {error}")))?;
    let Some(mut pattern) = absolute_path.to_str().map(str::to_owned) else {
        let sentence = format!("{}: the name of the file is not UTF-8: name another one", file.display());
        return Err(CommandError::Usage(sentence));
    };
    for (mark, is_wanted) in [("%p", are_several), ("%d", have_several)] {
        if is_wanted && !pattern.contains(mark) {
            pattern = beside(&pattern, mark);
        }
    }
    // A problem with writing a file is reported before a program is asked.
    if let Some(first) = chosen.first() {
        let path = pattern.replace("%p", &first.sharer.pid.to_string()).replace("%d", &first.device);
        create_private(Path::new(&path))
            .map_err(|error| CommandError::Failed(format!("{path} cannot be written: {error}")))?;
    }
    Ok(pattern)
}

/// Inserts a mark before the extension: "a.trace" becomes "a.%p.trace".
fn beside(pattern: &str, mark: &str) -> String {
    let path = Path::new(pattern);
    let end = path.extension().map(|end| end.to_string_lossy().into_owned());
    let stem =
        end.as_ref().map_or(pattern, |end| pattern.strip_suffix(&format!(".{end}")).unwrap_or(pattern));
    let end = end.map_or_else(String::new, |end| format!(".{end}"));
    format!("{stem}.{mark}{end}")
}

impl RecordedTrace {
    /// Waits until the trace of a device is complete.
    fn of(of: LiveDevice, file: Result<PathBuf, String>, until: Instant) -> RecordedTrace {
        let (file, refused) = match file {
            Ok(file) => (Some(file), None),
            Err(problem) => (None, Some(problem)),
        };
        let (bytes, omitted_records, lost_records) = (0, 0, 0);
        let mut recorded = RecordedTrace {
            of,
            file,
            bytes,
            omitted_records,
            lost_records,
            is_whole: false,
            problem: refused,
        };
        recorded.look(until);
        recorded
    }

    fn look(&mut self, until: Instant) {
        let Some(file) = &self.file else { return };
        let ended = |file: &Path| head(file).ok().filter(|(header, _)| header.is_ended);
        let (found, why) = match self.of.wait_for(file, until, ended) {
            Ok(absolute_path) => (Ok(absolute_path), ""),
            Err(NoOutput::Late) => (head(file), "it is stopped"),
            Err(NoOutput::Ended) => (head(file), "it was killed"),
        };
        match found {
            Ok((header, bytes)) => {
                self.bytes = bytes;
                (self.omitted_records, self.lost_records) = (header.omitted_records, header.lost_records);
                self.is_whole = header.is_ended;
                if !header.is_ended {
                    self.problem = Some(format!("{why}: the trace has what it had written before"));
                }
            }
            Err(unread) => self.problem = Some(unread),
        }
    }
}

/// Reads the header of a trace, and the length of the file.
fn head(path: &Path) -> Result<(TraceHeader, u64), String> {
    let read_error = |error: &dyn std::fmt::Display| format!("{} cannot be read: {error}", path.display());
    let file = File::open(path).map_err(|error| read_error(&error))?;
    let bytes = file.metadata().map_err(|error| read_error(&error))?.len();
    let reader = TraceReader::open(file).map_err(|error| read_error(&error))?;
    Ok((reader.header().clone(), bytes))
}

/// Returns the shortest form of a path from the current folder.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let short = here.as_ref().and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path);
    plain(&short.display().to_string())
}

fn text(all: &[RecordedTrace], out: &mut dyn Write) -> Result<(), CommandError> {
    let mut names = Vec::new();
    for one in all {
        let title = &one.of;
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

fn json(options: &LiveTraceOptions, all: &[RecordedTrace], out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct LiveTraceReport<'a> {
        for_ns: u64,
        traces: &'a [RecordedTrace],
    }
    serde_json::to_writer_pretty(
        &mut *out,
        &LiveTraceReport { for_ns: nanoseconds(options.time), traces: all },
    )?;
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

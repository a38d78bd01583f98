//! `pumice trace`: shows traces as a page, as timelines for Perfetto, as reasons why messages were slow, or
//! as text.

mod counters;
mod list;
mod live;
mod perfetto;
pub(crate) mod require;
mod slices;
mod view;
mod why;

use std::fs::File;
use std::io::{BufWriter, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use pumice_device::trace::{Timeline, create_private};

use crate::capture::file::is_capture;
use crate::capture::processes::processes;
use crate::observe::ProgressReader;
use crate::outcome::{CommandError, CommandResult, Outcome, complain};
use require::RequireOptions;

/// Number of messages that are explained if the options do not say it.
const SLOWEST: usize = 10;

/// Options of `pumice trace`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub(crate) struct TraceOptions {
    /// Traces and captures of one run: "pumice trace FILE" says what "pumice trace why FILE" does
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(subcommand)]
    action: Option<TraceAction>,
}

#[derive(Debug, Subcommand)]
enum TraceAction {
    /// Write traces of one or several processes as a timeline: open it in ui.perfetto.dev
    ///
    /// Every queue pair has its work requests as spans, and its packets, with an arrow to where they arrived.
    /// Perfetto's page reads the file in the browser, and sends it to no server.
    ToPerfetto {
        /// Traces that "pumice run --trace" has written, and captures (pcapng, pcap)
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The file to write; "-" is standard output. If it ends with .pftrace it has Perfetto's own format,
        /// which is smaller; else it is Chrome trace JSON
        #[arg(long, short, alias = "output", value_name = "FILE")]
        out: PathBuf,
    },
    /// Make one page of traces: packets between queue pairs, a timeline, and a table of work requests
    ///
    /// The page loads no other file: open it in any browser, also without a network.
    View {
        /// Traces that "pumice run --trace" has written, and captures (pcapng, pcap)
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The page to write; "-" is standard output
        #[arg(long, short, alias = "output", value_name = "FILE", default_value = "trace.html")]
        out: PathBuf,
    },
    /// Say where the time of the slowest and of all failed messages went, and what to change
    Why {
        /// Traces that "pumice run --trace" has written, and captures (pcapng, pcap)
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Number of the slowest messages
        #[arg(long, value_name = "N", default_value_t = SLOWEST)]
        slowest: usize,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Say whether traces bear out requirements, as in 'rdma.bytes > 0' or 'no retransmission'
    ///
    /// The exit code is 1 if one is not met, and 2 if one makes no sense.
    Require {
        /// Traces that "pumice run --trace" has written, of all processes of a run
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        require: RequireOptions,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Say what differs between two runs, such as one that is good and one that is not: the first departure
    /// first
    ///
    /// Processes belong together by their tags, queue pairs and requests by their ordinals. The exit code is
    /// 1 if more than times differ.
    Diff {
        /// The trace of the first run
        first: PathBuf,
        /// The trace of the second run
        second: PathBuf,
        /// Further traces of the first run
        #[arg(long, value_name = "FILE")]
        with_first: Vec<PathBuf>,
        /// Further traces of the second run
        #[arg(long, value_name = "FILE")]
        with_second: Vec<PathBuf>,
        /// Number of departures that are told
        #[arg(long, value_name = "N", default_value_t = SLOWEST)]
        most: usize,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Record what running programs do for a while, without having started them with --trace
    ///
    /// Programs are not stopped, and nothing of it stays with them. The files begin in the middle: what was
    /// posted before is not in them. The exit code is 1 if a program was not recorded, or not to the end.
    Live(live::LiveTraceOptions),
    /// Print the records of a trace, one a line
    List {
        /// Print one JSON object per line instead of text
        #[arg(long)]
        json: bool,
        /// The trace; "-" reads standard input
        file: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(options: &TraceOptions, out: &mut dyn Write) -> CommandResult {
    let Some(action) = &options.action else {
        return look(&options.files, out);
    };
    match action {
        TraceAction::ToPerfetto { files, out: output } => {
            let is_own_format = output.extension().is_some_and(|end| end == "pftrace");
            let write = if is_own_format { perfetto::write_pftrace } else { perfetto::write_json };
            save(&timeline(files)?, output, out, write)
        }
        TraceAction::View { files, out: output } => {
            let outcome = save(&timeline(files)?, output, out, view::write)?;
            if output != Path::new("-") {
                let page_path = std::path::absolute(output).unwrap_or_else(|_| output.clone());
                writeln!(out, "The page is {}: open it in any browser.", page_path.display())?;
            }
            Ok(outcome)
        }
        TraceAction::Why { files, slowest, json } => why::run(&timeline(files)?, *slowest, *json, out),
        TraceAction::Require { files, require, json } => {
            if require.requirements.is_empty() {
                let sentence = "name what is required: --require 'rdma.bytes > 0'";
                return Err(CommandError::Usage(sentence.to_owned()));
            }
            // A wrong requirement is reported before a trace is read.
            require.read()?;
            require::run(&timeline(files)?, require, &names(files), *json, out)
        }
        TraceAction::Diff { first, second, with_first, with_second, most, json } => {
            let all =
                |file: &PathBuf, more: &[PathBuf]| timeline(&[std::slice::from_ref(file), more].concat());
            list::run_diff(&all(first, with_first)?, &all(second, with_second)?, *most, *json, out)
        }
        TraceAction::Live(options) => live::run(options, out),
        TraceAction::List { file, json } => list::run(&file.display().to_string(), open(file)?, *json, out),
    }
}

/// Runs the command for a user who names only files: says where the time went, and how to see more.
fn look(files: &[PathBuf], out: &mut dyn Write) -> CommandResult {
    // A word that is no name of a file was meant as a command.
    let is_word = |file: &&PathBuf| !file.exists() && file.extension().is_none() && file.iter().count() == 1;
    if let Some(word) = files.first().filter(is_word) {
        return Err(CommandError::Usage(format!(
            "there is no file {}: name a trace, or view, why, require, diff, list or to-perfetto and a \
             trace, or live",
            word.display()
        )));
    }
    let outcome = why::run(&timeline(files)?, SLOWEST, false, out)?;
    writeln!(out, "\nA page with every message: pumice trace view {}", names(files))?;
    Ok(outcome)
}

/// Joins the names of files with blanks.
fn names(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
}

/// Reads the timeline of a run that has ended.
pub(crate) fn timeline_of(files: &[PathBuf]) -> Result<Timeline, CommandError> {
    timeline(files)
}

/// Writes a timeline in some format to a file, or to standard output.
fn save(
    timeline: &Timeline,
    output: &Path,
    out: &mut dyn Write,
    write: fn(&Timeline, &mut dyn Write) -> std::io::Result<()>,
) -> CommandResult {
    if output == Path::new("-") {
        // The output is written unescaped, because Perfetto's format is no text.
        out.flush()?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        write(timeline, &mut out).and_then(|()| out.flush()).map_err(CommandError::Output)?;
        return Ok(Outcome::Good);
    }
    let failed = |error: std::io::Error| {
        CommandError::Failed(format!("{} cannot be written: {error}", output.display()))
    };
    // The output is as private as the trace.
    let file = create_private(output).map_err(failed)?;
    file.set_len(0).map_err(failed)?;
    let mut file = BufWriter::new(file);
    write(timeline, &mut file).and_then(|()| file.flush()).map_err(failed)?;
    Ok(Outcome::Good)
}

/// Reads the timeline of traces and captures, and prints its remarks on standard error.
fn timeline(files: &[PathBuf]) -> Result<Timeline, CommandError> {
    let (mut sources, mut captures) = (Vec::new(), Vec::new());
    for file in files {
        let (name, mut source) = (file.display().to_string(), open(file)?);
        let mut magic = Vec::with_capacity(4);
        source.by_ref().take(4).read_to_end(&mut magic).map_err(|error| {
            CommandError::Failed(format!("{name} cannot be read: {error}: name a trace or a capture"))
        })?;
        let is_capture = is_capture(&magic);
        let rewound = Cursor::new(magic).chain(source);
        if is_capture { captures.push((name, rewound)) } else { sources.push((name, rewound)) }
    }
    let captured = processes(captures).map_err(|(name, why)| {
        CommandError::Failed(format!("{name} cannot be read as a capture of RoCE packets: {why}"))
    })?;
    let timeline = Timeline::read_with(sources, captured).map_err(|(name, error)| {
        CommandError::Failed(format!("{name} cannot be read as a trace: {error}"))
    })?;
    for remark in &timeline.remarks {
        complain(remark);
    }
    Ok(timeline)
}

fn open(file: &Path) -> Result<Box<dyn Read>, CommandError> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let opened = File::open(file).and_then(|opened| {
        let about = opened.metadata()?;
        if about.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok((opened, about.len())) }
    });
    let (opened, length) = opened.map_err(|error| {
        CommandError::Failed(format!("{} cannot be read: {error}: name a trace or a capture", file.display()))
    })?;
    Ok(Box::new(ProgressReader::new(opened, length, &file.display().to_string())))
}

#[cfg(test)]
mod tests {
    use std::io::sink;
    use std::path::Path;

    use super::*;
    use crate::capture::replay::replay;

    /// Writes a timeline in all formats; returns the length of the page in bytes.
    fn written(timeline: &Timeline) -> usize {
        let mut page = Vec::new();
        view::write(timeline, &mut page).expect("memory");
        perfetto::write_json(timeline, &mut sink()).expect("nowhere");
        perfetto::write_pftrace(timeline, &mut sink()).expect("nowhere");
        why::run(timeline, 3, false, &mut sink()).expect("nowhere");
        // No name in the file can add a script: the page has its own two, with their closing tags.
        let page = String::from_utf8(page).expect("UTF-8");
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
        page.len()
    }

    #[test]
    fn damaged_traces_of_the_corpus_are_written_in_every_form() {
        let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"));
        replay(fuzz, "trace", 1_000, |bytes| {
            let (half, _) = bytes.split_at(bytes.len() / 2);
            // The two traces are of two hosts, and one of them was cut.
            let both = [("one".to_owned(), half), ("other".to_owned(), bytes)];
            Timeline::read(both).map_or(0, |timeline| written(&timeline))
        });
    }

    #[test]
    fn damaged_captures_of_the_corpus_are_written_in_every_form() {
        let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"));
        replay(fuzz, "capture_timeline", 1_000, |bytes| {
            let Ok(captured) = processes(vec![("one".to_owned(), bytes)]) else { return 0 };
            let no_traces: [(String, &[u8]); 0] = [];
            Timeline::read_with(no_traces, captured).map_or(0, |timeline| written(&timeline))
        });
    }
}

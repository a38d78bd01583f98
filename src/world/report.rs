//! The report of a search, or of several that were merged.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use pumice_device::findings::{
    Fields, Finding, FindingFamily, FindingKind, FindingsReport, Level, ReportFormat, ReportHeader, print,
};
use pumice_device::outside::output_file::write_private;
use serde::Serialize;

use super::result::{SearchEnd, SearchFailure, SearchResult};
use crate::outcome::CommandError;

/// Maximum number of departures, seeds and shards that are listed one by one.
const MAX_LISTED_FAILURES: usize = 12;

static FAILS: FindingKind = FindingKind::new(
    "fails-in-an-order",
    FindingFamily::Ordering,
    Level::Error,
    "The program fails in some orders of its threads and processes.",
);

static NOT_SEARCHED: FindingKind = FindingKind::new(
    "orders-not-searched",
    FindingFamily::Ordering,
    Level::Error,
    "Some seeds were not run, so orders that break the program may be unknown.",
);

/// The options of the report.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// Write the failures to this file, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Format of that file: text, json, junit, markdown or sarif [default: by its extension]
    #[arg(long, value_name = "FORMAT", requires = "report", value_parser = format)]
    format: Option<ReportFormat>,
}

/// Parses the name of a format, before the first run is made.
fn format(name: &str) -> Result<ReportFormat, String> {
    ReportFormat::named(name).ok_or_else(|| "give text, json, junit, markdown or sarif".to_owned())
}

/// Prints what was found, and writes the report.
pub(super) fn write(
    result: &SearchResult,
    options: &ReportOptions,
    command: &'static str,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    out.write_all(text(result).as_bytes())?;
    let Some(file) = &options.report else { return Ok(()) };
    let document = match options.format.unwrap_or_else(|| ReportFormat::of_file(file)) {
        ReportFormat::Text => text(result),
        ReportFormat::Json => result.json(),
        format => {
            let not_searched = (!result.missing.is_empty() || result.end == SearchEnd::Interrupted)
                .then(|| Finding::new(&NOT_SEARCHED, "seeds", rest(result).join("; ")));
            let findings: Vec<Finding> = result.failures.iter().map(finding).chain(not_searched).collect();
            let program = result.command.first().cloned().unwrap_or_default();
            let about =
                ReportHeader { program, is_whole: rest(result).is_empty(), ..ReportHeader::default() };
            let kinds: &[&FindingKind] = &[&FAILS, &NOT_SEARCHED];
            print(&FindingsReport { command, about: &about, kinds, findings: &findings }, format)
        }
    };
    save(file, &document)
}

/// Writes a file completely or not at all, because another machine may check for it already.
pub(super) fn save(file: &Path, document: &str) -> Result<(), CommandError> {
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let written = write_private(Path::new(&fresh), document.as_bytes());
    written.and_then(|()| std::fs::rename(&fresh, file)).map_err(|error| {
        // A part of it may exist.
        let _ = std::fs::remove_file(&fresh);
        CommandError::Failed(format!("{} cannot be written: {error}", file.display()))
    })
}

fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// Returns the whole report as text.
fn text(result: &SearchResult) -> String {
    let shard = if result.shard.is_whole() { String::new() } else { format!(" of shard {}", result.shard) };
    let mut text = format!(
        "{}{shard} in {:.1} s: {} failed, in {}\n",
        counted(result.runs, "seed"),
        result.seconds,
        result.failed,
        counted(result.failures.len() as u64, "way")
    );
    if result.orders > 0 {
        text.push_str(&format!(
            "{} of two points met; {} % of the pairs in both orders\n",
            counted(result.orders, "order"),
            result.pairs_in_both_orders_percent
        ));
    }
    for line in rest(result) {
        text.push_str(&format!("{line}\n"));
    }
    for failure in &result.failures {
        text.push('\n');
        text.push_str(&failure_text(failure));
    }
    text
}

/// Describes what was not searched, a line each.
fn rest(result: &SearchResult) -> Vec<String> {
    let mut lines = Vec::new();
    if !result.missing.is_empty() {
        let named = listed(&result.missing);
        lines.push(format!(
            "{} missing, with their seeds: {named}",
            if result.missing.len() == 1 {
                "1 shard is".to_owned()
            } else {
                format!("{} shards are", result.missing.len())
            }
        ));
    }
    let why = match result.end {
        SearchEnd::All => return lines,
        SearchEnd::Time => "the time was over",
        SearchEnd::First => "of the first failure",
        SearchEnd::Interrupted => "it was interrupted",
    };
    let left = result.wanted().saturating_sub(result.runs);
    if left > 0 {
        lines.push(format!("{} of {} were not run, because {why}", left, counted(result.wanted(), "seed")));
    }
    lines
}

fn listed(numbers: &[u64]) -> String {
    let first: Vec<String> = numbers.iter().take(MAX_LISTED_FAILURES).map(u64::to_string).collect();
    let more = if numbers.len() > MAX_LISTED_FAILURES { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

fn failure_text(failure: &SearchFailure) -> String {
    let mut text = format!(
        "{}\n  seeds: {} ({} in all); run again {} times, the same {} times\n",
        failure.end,
        listed(&failure.seeds),
        failure.count,
        failure.run_again,
        failure.the_same,
    );
    if let Some(doubts) = &failure.doubts {
        text.push_str(&format!("  {doubts}\n"));
    }
    if let Some(end) = &failure.plain_end {
        text.push_str(&format!("  it fails in the plain order, too, in another way: {end}\n"));
    }
    // Without a recording it was not reduced.
    if failure.needs.is_empty() && failure.recording.is_some() {
        text.push_str("  it fails in the plain order, too\n");
    } else if !failure.needs.is_empty() {
        text.push_str("  it needs these departures from the plain order:\n");
        for words in failure.needs.iter().take(MAX_LISTED_FAILURES) {
            text.push_str(&format!("    {words}\n"));
        }
        if failure.needs.len() > MAX_LISTED_FAILURES {
            text.push_str(&format!("    and {} more\n", failure.needs.len() - MAX_LISTED_FAILURES));
        }
    }
    if let Some(file) = &failure.recording {
        text.push_str(&format!("  again: pumice world replay {file}\n"));
    }
    text
}

/// The evidence of a search's finding.
#[derive(Serialize)]
struct FailureEvidence<'a> {
    seeds: &'a [u64],
    run_again: u32,
    the_same: u32,
}

fn finding(failure: &SearchFailure) -> Finding {
    let sentence = if failure.needs.is_empty() && failure.recording.is_none() {
        "it was not reduced".to_owned()
    } else if failure.needs.is_empty() {
        "it fails in the plain order, too".to_owned()
    } else {
        let plain =
            failure.plain_end.iter().map(|end| format!("it fails in the plain order, too, with {end}"));
        plain.chain(failure.needs.iter().cloned()).collect::<Vec<_>>().join("; ")
    };
    let mut finding = Finding::new(&FAILS, failure.end.clone(), sentence);
    finding.count = failure.count;
    if let Some(file) = &failure.recording {
        finding.remedy = Some(format!("Run it again: pumice world replay {file}"));
    }
    let SearchFailure { seeds, run_again, the_same, .. } = failure;
    finding.evidence = Fields::of(&FailureEvidence { seeds, run_again: *run_again, the_same: *the_same });
    finding
}

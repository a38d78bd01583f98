//! What a search says at its end.

use std::io::Write;

use pumice_device::findings::{
    About, Family, Fields, Finding, FindingKind, Level, Report, ReportFormat, print,
};

use serde::Serialize;

use super::super::options::SearchWorldOptions;
use super::failure::Failure;
use crate::outcome::CommandError;

/// Departures that are told of one failure.
const MOST_TOLD: usize = 12;

static FAILS: FindingKind = FindingKind::new(
    "fails-in-an-order",
    Family::Ordering,
    Level::Error,
    "The program fails in some orders of its threads and processes.",
);

/// Says what was found, and writes the report.
pub(super) fn write(
    options: &SearchWorldOptions,
    failures: &[Failure],
    runs: u64,
    seconds: f64,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let failed: usize = failures.iter().map(|failure| failure.seeds.len()).sum();
    writeln!(out, "{runs} seeds in {seconds:.1} s: {failed} failed, in {} ways", failures.len())?;
    for failure in failures {
        writeln!(out)?;
        write!(out, "{}", told(failure))?;
    }
    if let Some(file) = &options.report {
        let format = match &options.format {
            Some(name) => ReportFormat::named(name).ok_or_else(|| {
                CommandError::Usage(format!("--format {name}: give text, json, junit, markdown or sarif"))
            })?,
            None => ReportFormat::of_file(file),
        };
        let findings: Vec<Finding> = failures.iter().map(finding).collect();
        let program =
            options.run.program.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let about = About { program, is_whole: true, ..About::default() };
        let report = Report { command: "world search", about: &about, kinds: &[&FAILS], findings: &findings };
        std::fs::write(file, print(&report, format)).map_err(|error| {
            CommandError::Failed(format!("{} cannot be written: {error}", file.display()))
        })?;
    }
    Ok(())
}

fn told(failure: &Failure) -> String {
    let (again, of) = failure.confirmed;
    let seeds: Vec<String> = failure.seeds.iter().take(MOST_TOLD).map(u64::to_string).collect();
    let more = if failure.seeds.len() > MOST_TOLD { ", …" } else { "" };
    let mut text = format!(
        "{}\n  seeds: {}{more} ({} in all); run again {of} times, the same {again} times\n",
        failure.end,
        seeds.join(", "),
        failure.seeds.len()
    );
    if !failure.first.is_certified {
        text.push_str(&format!("  {}\n", failure.first.said));
    }
    if failure.needs.is_empty() {
        text.push_str("  it fails in the plain order, too\n");
    } else {
        text.push_str("  it needs these departures from the plain order:\n");
        for words in failure.needs.iter().take(MOST_TOLD) {
            text.push_str(&format!("    {words}\n"));
        }
        if failure.needs.len() > MOST_TOLD {
            text.push_str(&format!("    and {} more\n", failure.needs.len() - MOST_TOLD));
        }
    }
    if let Some(file) = &failure.recording {
        text.push_str(&format!("  again: pumice world replay {}\n", file.display()));
    }
    text
}

/// What a finding of a search rests on.
#[derive(Serialize)]
struct Evidence<'a> {
    seeds: &'a [u64],
    run_again: u32,
    the_same: u32,
}

fn finding(failure: &Failure) -> Finding {
    let mut finding = Finding::new(&FAILS, failure.end.clone(), failure.needs.join("; "));
    let (again, of) = failure.confirmed;
    finding.count = failure.seeds.len() as u64;
    if let Some(file) = &failure.recording {
        finding.remedy = Some(format!("Run it again: pumice world replay {}", file.display()));
    }
    finding.evidence = Fields::of(&Evidence { seeds: &failure.seeds, run_again: of, the_same: again });
    finding
}

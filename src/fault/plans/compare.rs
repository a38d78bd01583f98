//! `pumice fault compare`: compares the reports of several runs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pumice_device::faults::{Comparison, Difference, compare};
use serde::Serialize;

use super::json;
use crate::outcome::{CommandError, CommandResult, Outcome};

/// Maximum number of differences of each report that are printed.
const MAX_SHOWN: usize = 20;

/// The comparison as JSON.
#[derive(Serialize)]
struct CompareReport<'a> {
    first: &'a Path,
    reports: Vec<ComparedReport<'a>>,
}

#[derive(Serialize)]
struct ComparedReport<'a> {
    report: &'a Path,
    same: bool,
    /// Both reports list the messages of their runs.
    has_notes: bool,
    differences: &'a [Difference],
}

/// Compares reports, each a file and its contents, with the first one.
pub(super) fn run(reports: &[(&PathBuf, String)], as_json: bool, out: &mut dyn Write) -> CommandResult {
    let [(first, text), others @ ..] = reports else { return Ok(Outcome::Good) };
    let (mut outcome, mut all) = (Outcome::Good, Vec::new());
    for (other, other_text) in others {
        let compared = compare(text, other_text).map_err(|(which, error)| {
            let file = if which == 0 { first } else { other };
            CommandError::Usage(format!("{}: {error}", file.display()))
        })?;
        if compared.differences.iter().any(|one| matches!(one, Difference::Fate { .. })) {
            outcome = Outcome::Bad;
        }
        all.push((other, compared));
    }
    if as_json {
        let reports = all.iter().map(|(other, compared)| ComparedReport {
            report: other,
            same: compared.is_same,
            has_notes: compared.has_notes,
            differences: &compared.differences,
        });
        json::write(&CompareReport { first, reports: reports.collect() }, out)?;
        return Ok(outcome);
    }
    for (other, compared) in all.iter().filter(|(_, compared)| !compared.is_same) {
        print_comparison(first, other, compared, out)?;
    }
    if all.iter().all(|(_, compared)| compared.is_same) {
        writeln!(out, "same")?;
    }
    Ok(outcome)
}

fn print_comparison(
    first: &Path,
    other: &Path,
    compared: &Comparison,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (first, other) = (first.display(), other.display());
    if compared.differences.is_empty() {
        let but = "for what timing alone brings about, and the ends of processes";
        return writeln!(out, "{other}: same but {but}");
    }
    for difference in compared.differences.iter().take(MAX_SHOWN) {
        match difference {
            Difference::Fate { first: Some(line), .. } => {
                writeln!(out, "{other}: another fate, in {first} alone: {line}")?;
            }
            Difference::Fate { other: line, .. } => {
                let line = line.as_deref().unwrap_or_default();
                writeln!(out, "{other}: another fate, not in {first}: {line}")?;
            }
            Difference::Message { direction, first: before, other: now, fates } => {
                let none = "there is none";
                let (before, now) = (before.as_deref().unwrap_or(none), now.as_deref().unwrap_or(none));
                writeln!(
                    out,
                    "{other}: another message: {direction}: {now}; in {first}: {before}; {fates} fates \
                     differ from there on"
                )?;
            }
        }
    }
    let more = compared.differences.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        writeln!(out, "{other}: and {more} more")?;
    }
    if !compared.has_notes {
        writeln!(out, "{other}: no rule noted which messages there were: add --fault note to both runs")?;
    }
    Ok(())
}

//! `pumice world compare`: which messages became slower since another run, and why.

use std::io::Write;
use std::path::{Path, PathBuf};

use pumice_device::findings::{
    Fields, Finding, FindingsReport, Level, ReportFormat, ReportHeader, json, junit, print,
};
use pumice_device::settings;
use pumice_device::trace::{COMPARISON_KINDS, RunComparison};
use pumice_world::Recording;

use super::options::CompareOptions;
use super::report;
use crate::check::required::traces_of;
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::trace::timeline_of;

/// Millionths in a percent.
const PPM: f64 = 10_000.0;

/// Runs the command.
pub(super) fn run(options: &CompareOptions, out: &mut dyn Write) -> CommandResult {
    let tolerance = options.tolerance;
    if !(0.0..=1000.0).contains(&tolerance) {
        let sentence = format!("--tolerance {tolerance}: give a number of percent from 0 to 1000");
        return Err(CommandError::Usage(sentence));
    }
    let (old, new) = (timeline_of(&files_of(&options.old)?)?, timeline_of(&files_of(&options.new)?)?);
    let compared = RunComparison::between(&old, &new, (tolerance * PPM).round() as u32);
    let names = format!("{} {}", options.old.display(), options.new.display());
    let printed = match (&options.report, options.format) {
        (None, Some(format)) => format,
        _ => ReportFormat::Text,
    };
    out.write_all(document(&compared, &names, printed).as_bytes())?;
    if let Some(file) = &options.report {
        let format = options.format.unwrap_or_else(|| ReportFormat::of_file(file));
        report::save(file, &document(&compared, &names, format))?;
    }
    Ok(if compared.is_good() { Outcome::Good } else { Outcome::Bad })
}

/// Returns the traces of a run, which is named by one, by their folder, or by a recording of the run.
fn files_of(run: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let files = if run.is_dir() {
        let entries = std::fs::read_dir(run)
            .map_err(|error| CommandError::Usage(format!("{} cannot be read: {error}", run.display())))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.is_file());
        files.sort();
        files
    } else if run.is_file()
        && let Ok(recording) = Recording::open(run)
    {
        let set = recording.header.options().environment;
        let trace = set.into_iter().find(|(name, _)| name == settings::TRACE).map(|(_, file)| file);
        let Some(trace) = trace else {
            return Err(CommandError::Usage(format!(
                "{} is a recording of a run without a trace: record it with --trace too",
                run.display()
            )));
        };
        traces_of(Path::new(&trace))
    } else if run.exists() {
        vec![run.to_owned()]
    } else {
        traces_of(run)
    };
    if files.is_empty() {
        return Err(CommandError::Usage(format!(
            "there are no traces of {}: name a trace, their folder, or a recording of a run with --trace",
            run.display()
        )));
    }
    Ok(files)
}

/// Returns the comparison in a format.
fn document(compared: &RunComparison, names: &str, format: ReportFormat) -> String {
    let findings = compared.findings();
    let about = ReportHeader { program: names.to_owned(), is_whole: true, ..ReportHeader::default() };
    let kinds = &COMPARISON_KINDS;
    let report = FindingsReport { command: "world compare", about: &about, kinds, findings: &findings };
    match format {
        ReportFormat::Text => text(compared, &findings),
        ReportFormat::Json => json::line(&Fields::of(compared).with("is_good", compared.is_good())),
        ReportFormat::Junit => junit::cases(&report, case),
        format => print(&report, format),
    }
}

/// Returns a finding as a test case, whose name is the same whether it passes or not.
fn case(_: usize, finding: &Finding) -> junit::JunitCase {
    let end = if finding.level < Level::Error { junit::CaseEnd::Passed } else { junit::CaseEnd::Failed };
    junit::JunitCase { name: finding.subject.clone(), seconds: None, end, details: String::new() }
}

fn text(compared: &RunComparison, findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let word = if finding.level < Level::Error { "ok" } else { "SLOWER" };
        text.push_str(&format!("{word}: {}: {}\n", finding.subject, finding.sentence));
    }
    for (name, bounds) in ["old", "new"].into_iter().zip(&compared.bounds) {
        if let Some(bounds) = bounds {
            text.push_str(&format!("{name} run: {bounds}\n"));
        }
    }
    text.push_str(&format!(
        "{} kinds of messages compared: {} slower, {} faster\n",
        compared.groups,
        compared.slower.len(),
        compared.faster
    ));
    text
}

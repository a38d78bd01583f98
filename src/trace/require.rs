//! `pumice trace require`, and the code that it shares with `pumice run --require`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use pumice_device::findings::{
    Fields, Finding, FindingsReport, ReportFormat, ReportHeader, json, junit, print,
};
use pumice_device::trace::Timeline;
use pumice_device::trace::require::{REQUIREMENT_KINDS, Requirement, RequirementVerdict};

use crate::outcome::{CommandError, CommandResult, Outcome};

/// The options of the requirements on a run.
#[derive(Debug, Default, Args)]
pub(crate) struct RequireOptions {
    /// Require this of the run, as in 'rdma.bytes > 1GB', 'no retransmission', 'p99(send) < 50us' or 'peer
    /// 10.0.0.2 used'; may be given several times; see docs/require.md
    #[arg(long = "require", value_name = "REQUIREMENT")]
    pub(crate) requirements: Vec<String>,
    /// Write what became of the requirements to this file, too
    #[arg(long, value_name = "FILE", requires = "requirements")]
    pub(crate) require_report: Option<PathBuf>,
    /// Format of that file: text, json, sarif, junit, markdown or github [default: by its extension]
    #[arg(long, value_name = "FORMAT", requires = "require_report")]
    pub(crate) require_format: Option<String>,
}

/// Requirements that have been parsed, and the destination of their report.
pub(crate) struct Requirements {
    requirements: Vec<Requirement>,
    report: Option<(PathBuf, ReportFormat)>,
}

impl RequireOptions {
    /// Reports whether nothing is required.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Rejects requirements where the command does not judge them.
    pub(crate) fn refuse(&self, what: &str) -> Result<(), CommandError> {
        if self.requirements.is_empty() {
            return Ok(());
        }
        Err(CommandError::Usage(format!(
            "--require is of \"pumice run\", \"pumice check\" and \"pumice world\": give {what} --trace \
             FILE, and then \"pumice trace require FILE\""
        )))
    }

    /// Parses the requirements.
    ///
    /// # Errors
    /// A requirement, or the format, is invalid: the command line is wrong.
    pub(crate) fn read(&self) -> Result<Requirements, CommandError> {
        let read = |text: &String| {
            Requirement::parse(text).map_err(|error| CommandError::Usage(format!("--require: {error}")))
        };
        let requirements = self.requirements.iter().map(read).collect::<Result<_, _>>()?;
        let format = self.require_format.as_deref().map(|name| {
            ReportFormat::named(name).ok_or_else(|| {
                let names = ReportFormat::NAMES;
                CommandError::Usage(format!("--require-format {name}: there are {names}"))
            })
        });
        let format = format.transpose()?;
        let report = self
            .require_report
            .as_ref()
            .map(|file| (file.clone(), format.unwrap_or_else(|| ReportFormat::of_file(file))));
        Ok(Requirements { requirements, report })
    }
}

impl Requirements {
    /// Judges all requirements by traces.
    pub(crate) fn judge(&self, timeline: &Timeline) -> Vec<RequirementVerdict> {
        let headers = timeline.processes.iter().map(|process| &process.header);
        let missing = headers.map(|header| header.omitted_records + header.lost_records).sum();
        self.requirements.iter().map(|one| one.judge(timeline, missing)).collect()
    }

    /// Writes the report, if one was requested. `program` is what was run, or the traces.
    pub(crate) fn report(&self, program: &str, verdicts: &[RequirementVerdict]) -> Result<(), CommandError> {
        let Some((file, format)) = &self.report else { return Ok(()) };
        let findings: Vec<Finding> = verdicts.iter().map(RequirementVerdict::to_finding).collect();
        let about = ReportHeader { program: program.to_owned(), is_whole: true, ..ReportHeader::default() };
        let report = FindingsReport {
            command: "require",
            about: &about,
            kinds: &REQUIREMENT_KINDS,
            findings: &findings,
        };
        let text = match format {
            ReportFormat::Junit => junit::cases(&report, case),
            format => print(&report, *format),
        };
        fs::write(file, text).map_err(|error| {
            CommandError::Failed(format!(
                "--require-report {}: it cannot be written: {error}",
                file.display()
            ))
        })
    }
}

/// Returns a requirement as a test case. Its name is the requirement alone, so that servers recognize it in
/// other runs.
fn case(_: usize, finding: &Finding) -> junit::JunitCase {
    let is_met = finding.level < pumice_device::findings::Level::Error;
    let end = if is_met { junit::CaseEnd::Passed } else { junit::CaseEnd::Failed };
    junit::JunitCase { name: finding.subject.clone(), seconds: None, end, details: String::new() }
}

/// Formats a verdict as one line.
pub(crate) fn line(verdict: &RequirementVerdict) -> String {
    let word = if verdict.is_met { "met" } else { "NOT MET" };
    format!("{word}: {}: {}", verdict.requirement, verdict.sentence)
}

/// Judges traces.
pub(super) fn run(
    timeline: &Timeline,
    options: &RequireOptions,
    names: &str,
    as_json: bool,
    out: &mut dyn Write,
) -> CommandResult {
    let required = options.read()?;
    let verdicts = required.judge(timeline);
    let is_met = verdicts.iter().all(|verdict| verdict.is_met);
    if as_json {
        let all: Vec<Fields> = verdicts.iter().map(fields).collect();
        let object = Fields::default().with("is_met", is_met).with("requirements", all);
        out.write_all(json::line(&object).as_bytes())?;
    } else {
        for verdict in &verdicts {
            writeln!(out, "{}", line(verdict))?;
        }
    }
    required.report(names, &verdicts)?;
    Ok(if is_met { Outcome::Good } else { Outcome::Bad })
}

fn fields(verdict: &RequirementVerdict) -> Fields {
    verdict.to_finding().evidence.with("sentence", verdict.sentence.as_str())
}

//! Results as a table, as JUnit test cases, and as a file by which a sweep that was stopped can be resumed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};

use pumice_device::findings::junit::{CaseEnd, JunitCase, cases};
use pumice_device::findings::text::{Column, Table};
use pumice_device::findings::{Finding, FindingsReport, Level, ReportHeader};
use serde::{Deserialize, Serialize};

use super::case::SweepCase;
use super::options::SweepOptions;
use super::verdict::{Judgement, KINDS, SweepVerdict};

/// Returns the document, with a test case for each run.
pub(super) fn document(judgements: &[Judgement], findings: &[Finding], options: &SweepOptions) -> String {
    let program = options.program.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let about = ReportHeader { program: program.into_owned(), is_whole: true, ..ReportHeader::default() };
    let report = FindingsReport { command: "sweep", about: &about, kinds: &KINDS, findings };
    cases(&report, |number, finding| {
        let judgement = judgements.get(number);
        let end = match judgement.map(|judgement| judgement.verdict) {
            _ if finding.level == Level::Error => CaseEnd::Failed,
            Some(SweepVerdict::Unmade) => CaseEnd::Skipped,
            _ => CaseEnd::Passed,
        };
        let seconds = judgement.map(|judgement| judgement.seconds);
        JunitCase { name: finding.subject.clone(), seconds, end, details: String::new() }
    })
}

/// The first line: the program and the options of the sweep.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JournalHeading {
    program: Vec<String>,
    server: Option<String>,
    sweep_server: bool,
}

impl JournalHeading {
    fn of(options: &SweepOptions) -> JournalHeading {
        let program = options.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        JournalHeading { program, server: options.server.clone(), sweep_server: options.sweep_server }
    }
}

/// A file of results; nothing is written without `--resume`.
#[derive(Debug)]
pub(super) struct Journal(Option<File>);

impl Journal {
    /// Opens the file that the options name, and returns the journal with the results in it.
    ///
    /// # Errors
    /// A sentence: the file cannot be read or written, or it is about another program.
    pub(super) fn open(options: &SweepOptions) -> Result<(Journal, Vec<Judgement>), String> {
        let Some(path) = &options.resume else { return Ok((Journal(None), Vec::new())) };
        let cannot = |error: io::Error| format!("--resume {}: {error}", path.display());
        let before = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(cannot)?,
        };
        // A line that was cut off is written again.
        let complete_lines = before.rfind('\n').map_or("", |end| before.get(..=end).unwrap_or_default());
        let mut lines = complete_lines.lines();
        let heading = JournalHeading::of(options);
        let known: Vec<Judgement> = match lines.next() {
            None => Vec::new(),
            Some(first) if serde_json::from_str(first).ok().as_ref() == Some(&heading) => {
                lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
            }
            Some(_) => {
                return Err(format!("--resume {}: it is about another command; remove it", path.display()));
            }
        };
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(cannot)?;
        file.set_len(complete_lines.len() as u64).map_err(cannot)?;
        let mut journal = Journal(Some(file));
        if complete_lines.is_empty() {
            journal.write(&heading).map_err(cannot)?;
        }
        Ok((journal, known))
    }

    /// Appends a result.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn note(&mut self, judgement: &Judgement) -> io::Result<()> {
        self.write(judgement)
    }

    fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(value)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Maximum number of characters of a program's output that are shown.
const MAX_OUTPUT_CHARACTERS: usize = 60;

/// Writes the runs that matter, and the number of runs of each kind.
pub(super) fn write(
    judgements: &[Judgement],
    findings: &[Finding],
    left_out: u64,
    options: &SweepOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let is_shown = |one: &Judgement| one.is_bad(options) || one.verdict == SweepVerdict::Silent;
    let rows = judgements.iter().zip(findings).filter(|(judgement, _)| is_shown(judgement));
    let (shown, rows): (Vec<&Judgement>, Vec<Finding>) =
        rows.map(|(judgement, finding)| (judgement, finding.clone())).unzip();
    let say = |words: fn(&Judgement) -> String| {
        let shown = &shown;
        move |number: usize, _: &Finding| shown.get(number).map(|one| words(one)).unwrap_or_default()
    };
    let columns = [
        Column::new("", 8, |_, finding| finding.kind.name.to_owned()),
        Column::new("what", 28, say(subject)),
        Column::new("nth", 4, say(ordinal)).at_right(),
        Column::new("fails with", 14, say(failure)),
        Column::new("end", 8, say(Judgement::ending)),
        Column::new("left, said", 0, say(notes)),
    ];
    let table = Table { columns: &columns, gap: 1, has_titles: true, is_spaced: false, has_remedies: false };
    table.write(&rows, out)?;
    let mut counts = BTreeMap::<SweepVerdict, usize>::new();
    for judgement in judgements.iter().filter(|judgement| judgement.case.is_some()) {
        *counts.entry(judgement.verdict).or_default() += 1;
    }
    let runs: usize = counts.values().sum();
    let counted: Vec<String> =
        counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.kind().name)).collect();
    writeln!(out, "{runs} runs with a fault: {}", counted.join(", "))?;
    if left_out > 0 {
        writeln!(out, "{left_out} more calls, completions or steps were not failed: --most 0 fails all")?;
    }
    Ok(())
}

fn subject(judgement: &Judgement) -> String {
    judgement.case.as_ref().map_or_else(|| "(without faults)".to_owned(), SweepCase::subject)
}

fn ordinal(judgement: &Judgement) -> String {
    judgement.case.as_ref().map(|case| case.ordinal().to_string()).unwrap_or_default()
}

fn failure(judgement: &Judgement) -> String {
    judgement.case.as_ref().map(|case| case.failure().to_owned()).unwrap_or_default()
}

fn notes(judgement: &Judgement) -> String {
    let mut notes = vec![judgement.leftovers()];
    notes.extend(judgement.said.as_deref().map(|said| format!("\"{}\"", shortened(said))));
    notes.retain(|note| !note.is_empty());
    notes.join("; ")
}

fn shortened(text: &str) -> String {
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(MAX_OUTPUT_CHARACTERS).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_lines_are_shortened() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"x".repeat(70)).chars().count(), MAX_SHORTENED);
    }

    const MAX_SHORTENED: usize = super::MAX_OUTPUT_CHARACTERS + 1;
}

//! Where the time of slow and failed messages went, a paragraph each.

use std::io::{self, Write};

use pumice_device::findings::text::{Column, Table};
use pumice_device::findings::{Fields, Finding, json};
use pumice_device::trace::{Reasons, Story, Timeline};

use crate::outcome::{CommandError, CommandResult, Outcome};

pub(super) fn run(timeline: &Timeline, slowest: usize, json: bool, out: &mut dyn Write) -> CommandResult {
    let reasons = Reasons::of(timeline, slowest);
    let written =
        if json { out.write_all(json::line(&object(&reasons)).as_bytes()) } else { text(&reasons, out) };
    written.map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

fn findings(stories: &[Story]) -> Vec<Finding> {
    stories.iter().map(Story::to_finding).collect()
}

/// One object with all stories.
fn object(reasons: &Reasons) -> Fields {
    let Reasons { failed, more_failed, flushed, unfinished, slowest, messages } = reasons;
    let evidence = |stories: &[Story]| -> Vec<Fields> {
        findings(stories).into_iter().map(|finding| finding.evidence).collect()
    };
    Fields::default()
        .with("failed", evidence(failed))
        .with("more_failed", *more_failed)
        .with("flushed", *flushed)
        .with("unfinished", *unfinished)
        .with("slowest", evidence(slowest))
        .with("messages", *messages)
}

fn text(reasons: &Reasons, out: &mut dyn Write) -> io::Result<()> {
    let Reasons { failed, more_failed, flushed, unfinished, slowest, messages } = reasons;
    let failures = failed.len() as u64 + more_failed;
    writeln!(
        out,
        "{messages} send requests: {failures} failed, {flushed} were flushed after a failure, \
         {unfinished} had not ended"
    )?;
    paragraphs(&findings(failed), |_| "FAILED".to_owned(), out)?;
    if *more_failed > 0 {
        writeln!(out, "\n{more_failed} more failed.")?;
    }
    paragraphs(&findings(slowest), |number| (number + 1).to_string(), out)
}

/// A paragraph for each, behind the mark of the n-th one, from 0.
fn paragraphs(findings: &[Finding], mark: impl Fn(usize) -> String, out: &mut dyn Write) -> io::Result<()> {
    let columns = [
        Column::new("", 6, |number, _| mark(number)).at_right(),
        Column::new("", 0, |_, finding| finding.sentence.clone()),
    ];
    let table = Table { columns: &columns, gap: 2, has_titles: false, is_spaced: true, has_remedies: false };
    table.write(findings, out)
}

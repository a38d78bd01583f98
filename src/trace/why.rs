//! Prints where the time of slow and failed messages went, a paragraph each.

use std::io::{self, Write};

use pumice_device::findings::text::{Column, Table};
use pumice_device::findings::{Fields, Finding, json};
use pumice_device::trace::{CauseGroup, Causes, PlaneCost, RunBounds, Timeline};

use super::slices::is_numbered;
use crate::outcome::{CommandError, CommandResult, Outcome};

/// Number of planes that are reported at most.
const MOST_PLANES: usize = 64;

pub(super) fn run(timeline: &Timeline, slowest: usize, json: bool, out: &mut dyn Write) -> CommandResult {
    let causes = Causes::of(timeline, slowest);
    let planes = PlaneCost::all(timeline);
    let bounds = RunBounds::of(timeline);
    let written = if json {
        let object = object(&causes, &planes);
        let object = match &bounds {
            Some(bounds) => object.with("bounds", Fields::of(bounds)),
            None => object,
        };
        out.write_all(json::line(&object).as_bytes())
    } else {
        text(&causes, timeline, out)
            .and_then(|()| of_planes(&planes, out))
            .and_then(|()| bounds.map_or(Ok(()), |bounds| writeln!(out, "\n{bounds}")))
    };
    written.map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

/// Returns the findings of the groups with a failed effect, or of the others.
fn findings(causes: &Causes, failed: bool) -> Vec<Finding> {
    causes.groups.iter().filter(|group| (group.failed > 0) == failed).map(CauseGroup::to_finding).collect()
}

/// Returns one JSON object with all causes.
fn object(causes: &Causes, planes: &[PlaneCost]) -> Fields {
    let Causes { failed, flushed, unfinished, messages, is_cut, .. } = causes;
    let evidence = |failed| -> Vec<Fields> {
        findings(causes, failed).into_iter().map(|finding| finding.evidence).collect()
    };
    Fields::default()
        .with("failed", evidence(true))
        .with("failures", *failed)
        .with("flushed", *flushed)
        .with("unfinished", *unfinished)
        .with("slowest", evidence(false))
        .with("messages", *messages)
        .with("is_cut", *is_cut)
        .with("planes", planes.iter().take(MOST_PLANES).map(PlaneCost::to_fields).collect::<Vec<Fields>>())
}

/// Writes which planes of MRC queue pairs have cost what, the dearest first.
fn of_planes(planes: &[PlaneCost], out: &mut dyn Write) -> io::Result<()> {
    for (number, plane) in planes.iter().take(MOST_PLANES).enumerate() {
        writeln!(out, "{}{plane}", if number == 0 { "\n" } else { "" })?;
    }
    Ok(())
}

/// Counts queue pairs whose requests no trace has: those of services whose messages are sent as datagrams.
fn unfollowed(timeline: &Timeline) -> usize {
    let queue_pairs = timeline.processes.iter().flat_map(|process| &process.queue_pairs);
    queue_pairs.filter(|qp| is_numbered(&qp.service)).count()
}

fn text(causes: &Causes, timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let Causes { failed, flushed, unfinished, messages, is_cut, .. } = causes;
    writeln!(
        out,
        "{messages} send requests: {failed} failed, {flushed} were flushed after a failure, {unfinished} had \
         not ended"
    )?;
    match unfollowed(timeline) {
        0 => {}
        1 => writeln!(
            out,
            "The requests of 1 queue pair of SRD or DC are not among them: traces have its packets."
        )?,
        more => writeln!(
            out,
            "The requests of {more} queue pairs of SRD or DC are not among them: traces have their packets."
        )?,
    }
    let of_failures: Vec<&CauseGroup> = causes.groups.iter().filter(|group| group.failed > 0).collect();
    // If all effects were flushed, the heading counts no failure, and neither does the mark.
    let mark = |number: usize| {
        let is_flushed = of_failures.get(number).is_some_and(|group| group.is_flushed());
        if is_flushed { "FLUSHED".to_owned() } else { "FAILED".to_owned() }
    };
    paragraphs(&findings(causes, true), mark, out)?;
    paragraphs(&findings(causes, false), |number| (number + 1).to_string(), out)?;
    if *is_cut {
        writeln!(
            out,
            "\nThere are more messages: the slowest are judged, so a cause may have more effects."
        )?;
    }
    Ok(())
}

/// Writes a paragraph for each finding, behind the mark of the n-th one, from 0.
fn paragraphs(findings: &[Finding], mark: impl Fn(usize) -> String, out: &mut dyn Write) -> io::Result<()> {
    let columns = [
        Column::new("", 6, |number, _| mark(number)).at_right(),
        Column::new("", 0, |_, finding| finding.sentence.clone()),
    ];
    let table = Table { columns: &columns, gap: 2, has_titles: false, is_spaced: true, has_remedies: false };
    table.write(findings, out)
}

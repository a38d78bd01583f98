//! Findings as a table.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pumice_device::findings::Finding;
use pumice_device::findings::text::{Column, Table};

use super::case::SweepCase;
use super::options::SweepOptions;
use super::verdict::{Judgement, SweepVerdict};

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

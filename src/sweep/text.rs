//! Findings as a table.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::options::SweepOptions;
use super::verdict::{Finding, Verdict};

/// Longest part of what a program said that is shown.
const SAID_CHARACTERS: usize = 60;

/// Writes the runs that matter, and how many there were of each kind.
pub(super) fn write(
    findings: &[Finding],
    left_out: u64,
    options: &SweepOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let shown: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.is_bad(options) || finding.verdict == Verdict::Silent)
        .collect();
    if !shown.is_empty() {
        writeln!(out, "{:<8} {:<28} {:>4} {:<14} {:<8} left, said", "", "what", "nth", "fails with", "end")?;
    }
    for finding in shown {
        let (call, nth, errno) = match &finding.case {
            Some(case) => (case.subject(), case.ordinal().to_string(), case.failure()),
            None => ("(without faults)".to_owned(), String::new(), ""),
        };
        let mut notes = vec![finding.leftovers()];
        notes.extend(finding.said.as_deref().map(|said| format!("\"{}\"", shortened(said))));
        notes.retain(|note| !note.is_empty());
        writeln!(
            out,
            "{:<8} {call:<28} {nth:>4} {errno:<14} {:<8} {}",
            finding.verdict.to_string(),
            finding.ending(),
            notes.join("; ")
        )?;
    }
    let mut counts = BTreeMap::<Verdict, usize>::new();
    for finding in findings.iter().filter(|finding| finding.case.is_some()) {
        *counts.entry(finding.verdict).or_default() += 1;
    }
    let runs: usize = counts.values().sum();
    let counted: Vec<String> = counts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    writeln!(out, "{runs} runs with a fault: {}", counted.join(", "))?;
    if left_out > 0 {
        writeln!(out, "{left_out} more calls, completions or steps were not failed: --most 0 fails all")?;
    }
    Ok(())
}

fn shortened(text: &str) -> String {
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(SAID_CHARACTERS).collect();
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
        assert_eq!(shortened(&"x".repeat(70)).chars().count(), SAID);
    }

    const SAID: usize = super::SAID_CHARACTERS + 1;
}

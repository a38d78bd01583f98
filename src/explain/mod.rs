//! `pumice explain`: the meaning, the usual causes and the remedies of a status, an errno, an event or a
//! counter.

mod async_event;
mod cm_event;
mod counter;
mod entry;
mod errno;
mod search;
mod status;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use crate::outcome::{CommandError, CommandResult, Outcome};
use entry::ExplainEntry;
pub(crate) use entry::ExplainedKind;
use search::tables;
pub(crate) use search::write_page;

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// Names or numbers, e.g. RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR, 12, EINVAL, timeout; without one, all
    /// names are listed
    #[arg(value_name = "NAME", allow_negative_numbers = true)]
    pub(crate) names: Vec<String>,
    /// Print a JSON array instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(options: &ExplainOptions, out: &mut dyn Write) -> CommandResult {
    let mut found = Vec::new();
    for name in &options.names {
        let matches = search::matches(name);
        if matches.is_empty() {
            return Err(CommandError::Usage(search::unknown(name)));
        }
        found.extend(matches);
    }
    if options.names.is_empty() {
        found =
            tables().iter().flat_map(|(kind, entries)| entries.iter().map(|entry| (*kind, entry))).collect();
    }
    if options.json {
        print_json(&found, out)?;
    } else if options.names.is_empty() {
        list(out)?;
    } else {
        for (index, (kind, entry)) in found.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            print(*kind, entry, out)?;
        }
    }
    Ok(Outcome::Good)
}

fn print(kind: ExplainedKind, entry: &ExplainEntry, out: &mut dyn Write) -> io::Result<()> {
    let full = entry.full_name(kind);
    let number = entry.number.map(|number| format!(" {number}")).unwrap_or_default();
    writeln!(out, "{full}: {}{number}", kind.description())?;
    writeln!(out, "  {}", entry.meaning)?;
    for (heading, sentences) in kind.headings().into_iter().zip([entry.causes, entry.look_at]) {
        if !sentences.is_empty() {
            writeln!(out, "  {heading}:")?;
        }
        for sentence in sentences {
            writeln!(out, "  - {sentence}")?;
        }
    }
    Ok(())
}

fn list(out: &mut dyn Write) -> io::Result<()> {
    for (index, (kind, entries)) in tables().into_iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", kind.heading())?;
        for entry in entries {
            let number = entry.number.map(|number| number.to_string()).unwrap_or_default();
            writeln!(out, "  {number:>3} {:<24} {}", entry.name, entry.first_sentence())?;
        }
    }
    writeln!(out, "\n`pumice explain NAME` says what usually causes one of them, and what to look at.")
}

fn print_json(found: &[(ExplainedKind, &'static ExplainEntry)], out: &mut dyn Write) -> CommandResult {
    #[derive(Serialize)]
    struct ExplanationJson {
        kind: ExplainedKind,
        name: String,
        #[serde(flatten)]
        entry: &'static ExplainEntry,
    }
    let all: Vec<ExplanationJson> = found
        .iter()
        .map(|(kind, entry)| ExplanationJson { kind: *kind, name: entry.full_name(*kind), entry })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)?;
    Ok(Outcome::Good)
}

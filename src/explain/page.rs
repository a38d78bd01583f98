//! Writes explanations as a page of the reference.

use std::io::{self, Write};

use super::entry::{ExplainEntry, ExplainedKind};
use super::tables::tables;

/// Writes a page with all entries of these kinds.
pub(crate) fn write_page(title: &str, kinds: &[ExplainedKind], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# {title}\n\n`pumice explain NAME` prints the same.")?;
    for (kind, entries) in tables().into_iter().filter(|(kind, _)| kinds.contains(kind)) {
        if kinds.len() > 1 {
            writeln!(out, "\n## {}", kind.heading())?;
        }
        let depth = if kinds.len() > 1 { "###" } else { "##" };
        for entry in entries {
            write_entry(depth, kind, entry, out)?;
        }
    }
    Ok(())
}

fn write_entry(
    depth: &str,
    kind: ExplainedKind,
    entry: &ExplainEntry,
    out: &mut dyn Write,
) -> io::Result<()> {
    let number = entry.number.map(|number| format!(" ({number})")).unwrap_or_default();
    writeln!(out, "\n{depth} {}{number}\n\n{}", entry.full_name(kind), entry.meaning)?;
    for (heading, sentences) in kind.headings().into_iter().zip([entry.causes, entry.look_at]) {
        if !sentences.is_empty() {
            writeln!(out, "\n{heading}:\n")?;
        }
        for sentence in sentences {
            writeln!(out, "* {sentence}")?;
        }
    }
    Ok(())
}

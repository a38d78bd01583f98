//! `pumice reference`: the pages of the reference, written from what the program itself knows.
//!
//! `docs/reference.py` puts them into the book.

mod commands;
mod environment;
mod profiles;

use std::io::{self, Write};

use crate::cli::ReferenceOptions;
use crate::explain::{self, ExplainedKind};
use crate::outcome::{CommandError, CommandResult, Outcome};

type PageWriter = fn(&mut dyn Write) -> io::Result<()>;

/// The pages: name of the file without its extension, and the function that writes it.
const PAGES: [(&str, PageWriter); 9] = [
    ("commands", commands::write_commands),
    ("environment", environment::write),
    ("statuses", |out| explain::write_page("Statuses of work completions", &[ExplainedKind::Status], out)),
    ("errnos", |out| explain::write_page("Errnos of calls", &[ExplainedKind::Errno], out)),
    ("events", |out| {
        explain::write_page("Events", &[ExplainedKind::AsyncEvent, ExplainedKind::CmEvent], out)
    }),
    ("counters", |out| explain::write_page("Counters", &[ExplainedKind::Counter], out)),
    ("faults", commands::write_faults),
    ("profiles", profiles::write),
    ("personalities", commands::write_personalities),
];

/// Runs the command.
pub(crate) fn run(options: &ReferenceOptions, out: &mut dyn Write) -> CommandResult {
    let Some(wanted) = &options.page else {
        for (name, _) in PAGES {
            writeln!(out, "{name}")?;
        }
        return Ok(Outcome::Good);
    };
    let Some((_, write)) = PAGES.iter().find(|(name, _)| name == wanted) else {
        let names = PAGES.map(|(name, _)| name).join(", ");
        return Err(CommandError::Usage(format!("there is no page {wanted:?}: the pages are {names}")));
    };
    write(out)?;
    Ok(Outcome::Good)
}

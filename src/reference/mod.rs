//! `pumice reference`: the pages of `docs/reference`, written from what the program itself knows.
//!
//! The command is hidden: its reader is `tests/docs_reference.rs`, which compares the pages with the folder.

mod commands;
mod environment;
mod faults;
mod personalities;
mod profiles;
mod table;

use std::io::{self, Write};

use crate::cli::ReferenceOptions;
use crate::explain::{self, EntryKind};
use crate::outcome::{CommandError, CommandResult, Outcome};

type Writer = fn(&mut dyn Write) -> io::Result<()>;

/// The pages: name of the file without its extension, and what writes it.
const PAGES: [(&str, Writer); 9] = [
    ("commands", commands::write),
    ("environment", environment::write),
    ("statuses", |out| explain::write_page("Statuses of work completions", &[EntryKind::Status], out)),
    ("errnos", |out| explain::write_page("Errnos of calls", &[EntryKind::Errno], out)),
    ("events", |out| explain::write_page("Events", &[EntryKind::AsyncEvent, EntryKind::CmEvent], out)),
    ("counters", |out| explain::write_page("Counters", &[EntryKind::Counter], out)),
    ("faults", faults::write),
    ("profiles", profiles::write),
    ("personalities", personalities::write),
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

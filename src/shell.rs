//! Completions for shells, and manual pages for man(1).

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionsOptions, ManOptions};
use crate::outcome::{CommandError, CommandResult, Outcome};

/// Name of the program in completions and pages.
const NAME: &str = "pumice";

/// Runs `pumice completions`.
pub(crate) fn completions(options: &CompletionsOptions, out: &mut dyn Write) -> CommandResult {
    let mut bytes = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), NAME, &mut bytes);
    out.write_all(&bytes)?;
    Ok(Outcome::Good)
}

/// Runs `pumice man`.
pub(crate) fn man(options: &ManOptions, out: &mut dyn Write) -> CommandResult {
    match &options.out {
        None => clap_mangen::Man::new(Cli::command()).render(&mut &mut *out)?,
        Some(folder) => {
            let failed = |error: std::io::Error| unwritten(folder, &error);
            fs::create_dir_all(folder).map_err(failed)?;
            clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
        }
    }
    Ok(Outcome::Good)
}

fn unwritten(folder: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!("--out {}: it cannot be written: {error}: name a folder", folder.display()))
}

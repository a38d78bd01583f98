//! `pumice mrc`: prints the profiles, queue pairs and paths of MRC of the running processes of this user.

mod text;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pumice_transport::path::ROCE_PORT;

use crate::observe::SnapshotScope;
use crate::outcome::{CommandError, CommandResult, Outcome};
use text::MrcProcess;
pub(crate) use text::planes;

/// Time for which answers of processes are awaited. A live process answers within a millisecond or two.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Options of `pumice mrc`.
#[derive(Debug, Args)]
pub(crate) struct MrcOptions {
    /// Show only the process with this number
    #[arg(long)]
    pid: Option<u32>,
    /// Show every path [default: those that are not GOOD]
    #[arg(long)]
    paths: bool,
    /// Print JSON, with every path
    #[arg(long)]
    json: bool,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    port: u16,
    /// Folder of the registry of processes, if it is not the usual one
    #[arg(long, hide = true)]
    registry: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(options: &MrcOptions, out: &mut dyn Write) -> CommandResult {
    let scope = SnapshotScope {
        port: options.port,
        registry: options.registry.as_deref(),
        pid: options.pid,
        patience: TIMEOUT,
    };
    let found = scope.look().map_err(CommandError::Failed)?;
    if let Some(pid) = options.pid
        && found.processes.is_empty()
    {
        return Err(CommandError::Failed(format!(
            "no process {pid} of this user shares UDP port {}; without --pid all that do are shown",
            options.port
        )));
    }
    let processes: Vec<MrcProcess> = found.processes.iter().filter_map(MrcProcess::of).collect();
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &processes)?;
        writeln!(out)?;
    } else {
        text::print(&processes, options.paths, out)?;
    }
    let is_silent = processes.iter().any(|process| !process.answers);
    Ok(if is_silent { Outcome::Bad } else { Outcome::Good })
}

//! `pumice mrc`: prints the profiles, queue pairs and paths of MRC of the running processes of this user.

mod text;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pumice_device::inspect::{MrcProfileView, QpView};
use pumice_transport::path::ROCE_PORT;
use serde::Serialize;

use crate::observe::{ProcessView, SnapshotScope, plain};
use crate::outcome::{CommandError, CommandResult, Outcome};

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

/// A process that has profiles or queue pairs of MRC, or did not answer.
#[derive(Debug, Serialize)]
struct MrcProcess {
    pid: u32,
    program: Option<String>,
    address: IpAddr,
    /// False if the process did not answer.
    answers: bool,
    /// Profiles of its controller.
    profiles: Vec<MrcProfileView>,
    /// Queue pairs of MRC.
    queue_pairs: Vec<QpView>,
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
    let processes: Vec<MrcProcess> = found.processes.iter().filter_map(mrc_process).collect();
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &processes)?;
        writeln!(out)?;
    } else {
        text::print(&processes, options.paths, out)?;
    }
    let is_silent = processes.iter().any(|process| !process.answers);
    Ok(if is_silent { Outcome::Bad } else { Outcome::Good })
}

/// Returns what a process has of MRC; `None` if it answered and has nothing.
fn mrc_process(process: &ProcessView) -> Option<MrcProcess> {
    let objects = process.objects.as_ref();
    let profiles = objects.map(|objects| objects.mrc_profiles.clone()).unwrap_or_default();
    let qps = objects.map(|objects| objects.qps.as_slice()).unwrap_or_default();
    let queue_pairs: Vec<QpView> = qps.iter().filter(|qp| qp.mrc.is_some()).cloned().collect();
    let answers = process.answers();
    if answers && profiles.is_empty() && queue_pairs.is_empty() {
        return None;
    }
    Some(MrcProcess {
        pid: process.pid,
        program: process.program.as_deref().map(plain),
        address: process.address,
        answers,
        profiles,
        queue_pairs,
    })
}

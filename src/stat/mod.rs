//! `pumice stat`: what the running processes of this user have counted.

mod options;
mod program;
mod table;

use std::io::Write;
use std::time::Duration;

use pumice_device::share::{Report, reports};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::outcome::{CommandError, CommandResult, Outcome};
pub(crate) use options::StatOptions;
pub(crate) use program::program;

/// How long processes are waited for. One that lives answers within a millisecond or two.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run(options: &StatOptions, out: &mut dyn Write) -> CommandResult {
    let mut found = reports(options.port, options.registry.as_deref(), PATIENCE)
        .map_err(|error| CommandError::Failed(format!("the processes cannot be asked: {error}")))?;
    if let Some(pid) = options.pid {
        found.retain(|report| report.sharer.pid == pid);
        if found.is_empty() {
            return Err(CommandError::Failed(format!(
                "no process {pid} of this user shares UDP port {}; without --pid all that do are shown",
                options.port
            )));
        }
    }
    if options.json {
        print_json(&found, out)?;
    } else {
        table::print(&found, options, out)?;
    }
    let silent = found.iter().any(|report| report.counters.is_none());
    Ok(if silent { Outcome::Bad } else { Outcome::Good })
}

fn print_json(found: &[Report], out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct Process {
        pid: u32,
        program: Option<String>,
        process_index: u8,
        address: std::net::IpAddr,
        /// Null: it did not answer.
        counters: Option<Map<String, Value>>,
    }
    let processes: Vec<Process> = found
        .iter()
        .map(|report| Process {
            pid: report.sharer.pid,
            program: program(report.sharer.pid),
            process_index: report.sharer.process.value(),
            address: report.address(),
            counters: report.counters.as_ref().map(|counters| {
                counters.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect()
            }),
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &processes)?;
    writeln!(out)?;
    Ok(())
}

//! `pumice stat`: prints the counters and the activity of the running processes of this user.

mod listen;
mod metrics;
mod options;
mod table;
mod watch;

use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use pumice_device::inspect::InspectedObjects;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::observe::{Snapshot, SnapshotScope, plain};
use crate::outcome::{CommandError, CommandResult, Outcome};
pub(crate) use options::{StatOptions, seconds};

/// Time for which answers of processes are awaited. A live process answers within a millisecond or two.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which answers are awaited at each of many snapshots: a stopped process delays the others.
const WATCH_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs the command.
pub(crate) fn run(options: &StatOptions, out: &mut dyn Write) -> CommandResult {
    if let Some(address) = options.listen {
        let service = listen::MetricsService {
            port: options.port,
            registry: options.registry.clone(),
            pid: options.pid,
            most_qps: options.per_qp.map(usize::from),
            allowed: options.allow_user.clone(),
            turn: Mutex::default(),
        };
        return listen::serve(address, service, out);
    }
    let registry = options.registry.as_deref();
    let patience = if options.watch.is_some() { WATCH_TIMEOUT } else { TIMEOUT };
    let scope = SnapshotScope { port: options.port, registry, pid: options.pid, patience };
    if let Some(interval) = options.watch {
        let how = watch::WatchOptions { interval, count: options.count, json: options.json };
        return watch::watch(&scope, &how, out);
    }
    let found = scope.look().map_err(CommandError::Failed)?;
    if let Some(pid) = options.pid
        && found.processes.is_empty()
    {
        return Err(CommandError::Failed(format!(
            "no process {pid} of this user shares UDP port {}; without --pid all that do are shown",
            options.port
        )));
    }
    if options.json {
        print_json(&found, out)?;
    } else {
        table::print(&found.processes, options, out)?;
    }
    let silent = found.processes.iter().any(|process| !process.answers());
    Ok(if silent { Outcome::Bad } else { Outcome::Good })
}

fn print_json(found: &Snapshot, out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct ProcessEntry<'a> {
        pid: u32,
        program: Option<&'a str>,
        process_index: u8,
        address: std::net::IpAddr,
        /// Counters of the process; null if it did not answer.
        counters: Option<Map<String, Value>>,
        tag: Option<String>,
        /// Objects of the process; null if it did not answer. The lists may be truncated; `totals` has the
        /// complete numbers.
        objects: Option<&'a InspectedObjects>,
    }
    let processes: Vec<ProcessEntry<'_>> = found
        .processes
        .iter()
        .map(|process| ProcessEntry {
            pid: process.pid,
            program: process.program.as_deref(),
            process_index: process.index,
            address: process.address,
            counters: process.counters.as_ref().map(|counters| {
                counters.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect()
            }),
            tag: process.objects.as_ref().map(|objects| plain(&objects.tag)),
            objects: process.objects.as_ref(),
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &processes)?;
    writeln!(out)?;
    Ok(())
}

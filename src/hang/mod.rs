//! `pumice hang`: shows which processes wait for which, and what blocks all of them, seen from outside at one
//! time.

mod draw;
mod hosts;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread;

use pumice_device::waits::{ProcessStatus, WaitGraph, graph};
use serde::Serialize;

use crate::outcome::{CommandError, CommandResult, Outcome};
pub(crate) use hosts::HangOptions;
use hosts::{HostResult, HostSnapshots};

/// Runs the command.
pub(crate) fn run(options: &HangOptions, out: &mut dyn Write) -> CommandResult {
    let (own, host_results) = thread::scope(|scope| {
        // All hosts take their snapshots at one time.
        let host_results = scope.spawn(|| hosts::query_hosts(options));
        (hosts::take_snapshots(options), host_results.join())
    });
    let host_results = host_results.unwrap_or_else(|_| Err("the other hosts could not be asked".to_owned()));
    let (mut looks, mut host_results) = (own?, host_results.map_err(CommandError::Usage)?);
    let own = looks.host.clone();
    for file in &options.with {
        let other = read(file)?;
        looks.before.extend(on_host(other.before, &other.host, &own));
        looks.processes.extend(on_host(other.processes, &other.host, &own));
    }
    for one in &mut host_results {
        if let Some(other) = one.looks.take() {
            looks.add(other, &one.host);
        }
    }
    let found = graph(&looks.before, &looks.processes);
    let silent: Vec<&HostResult> = host_results.iter().filter(|one| one.problem.is_some()).collect();
    if options.json {
        json(&looks, &host_results, &found, out)?;
    } else {
        for one in &silent {
            let problem = one.problem.as_deref().unwrap_or_default();
            writeln!(out, "host {} is not known: {problem}", one.host)?;
        }
        draw::write(&looks.processes, &found, out)?;
    }
    if let Some(file) = &options.svg {
        save(file, &draw::svg(&looks.processes, &found))?;
    }
    if let Some(file) = &options.dot {
        save(file, &draw::dot(&looks.processes, &found))?;
    }
    Ok(if found.verdicts.is_empty() && silent.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// Returns the processes of another host, without those of this one, which are listed already.
fn on_host<'a>(
    all: Vec<ProcessStatus>,
    host: &'a str,
    own: &str,
) -> impl Iterator<Item = ProcessStatus> + use<'a> {
    let is_other = host != own;
    all.into_iter().filter(move |_| is_other).map(move |one| {
        let host = if one.host.is_empty() { host.to_owned() } else { one.host.clone() };
        ProcessStatus { host, ..one }
    })
}

fn json(
    looks: &HostSnapshots,
    host_results: &[HostResult],
    found: &WaitGraph,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct HangReport<'a> {
        #[serde(flatten)]
        looks: &'a HostSnapshots,
        hosts: &'a [HostResult],
        #[serde(flatten)]
        graph: &'a WaitGraph,
    }
    serde_json::to_writer_pretty(&mut *out, &HangReport { looks, hosts: host_results, graph: found })?;
    writeln!(out)?;
    Ok(())
}

fn read(file: &Path) -> Result<HostSnapshots, CommandError> {
    let refuse = |what: String| {
        let remedy = "name a file that `pumice hang --json` has written on another host";
        CommandError::Failed(format!("{}: {what}: {remedy}", file.display()))
    };
    let text = fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))
}

fn save(file: &Path, picture: &str) -> Result<(), CommandError> {
    fs::write(file, picture)
        .map_err(|error| CommandError::Failed(format!("{} cannot be written: {error}", file.display())))
}

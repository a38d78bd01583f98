//! The status of this user's processes, for the search for processes that wait for each other
//! ([`pumice_analysis::waits`]).

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use pumice_analysis::waits::ProcessStatus;
use pumice_fabric::sharing::{InspectReply, SharingError, inspect, inspect_waits};
use pumice_platform::outside::files;
use pumice_platform::outside::interface::interfaces;

/// Returns the status of all processes that share a UDP port of this network namespace. `folder` is that of
/// the registry, if it is not the usual one. With `looks` each process examines what its threads wait for,
/// and reports it when it is asked later.
///
/// # Errors
/// Fails as [`inspect()`] does.
pub fn process_statuses(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    looks: bool,
) -> Result<Vec<ProcessStatus>, SharingError> {
    let ask = if looks { inspect_waits } else { inspect };
    Ok(ask(port, folder, patience)?.into_iter().map(process_status).collect())
}

fn process_status(one: InspectReply) -> ProcessStatus {
    let has_all = one.sharer.address.is_unspecified();
    let InspectReply { sharer, objects } = one;
    let program = files::fact_text(format!("/proc/{}/comm", sharer.pid)).unwrap_or_default();
    ProcessStatus {
        host: String::new(),
        pid: sharer.pid,
        program: program.trim_end().to_owned(),
        address: Some(sharer.address).filter(|address| !address.is_unspecified()),
        addresses: if has_all { host_addresses() } else { Vec::new() },
        index: sharer.process().value(),
        is_stopped: is_stopped(sharer.pid),
        objects,
    }
}

/// Returns all addresses of this host.
fn host_addresses() -> Vec<IpAddr> {
    let all = interfaces().unwrap_or_default().into_iter().flat_map(|interface| interface.addresses);
    all.map(|(address, _)| address).collect()
}

/// Reports whether a signal, or a debugger, has stopped a process.
fn is_stopped(pid: u32) -> bool {
    let about = files::fact_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before may contain any character.
    let state = about.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

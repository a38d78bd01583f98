//! How the processes of this user stand, for those who look who waits for whom
//! ([`pumice_instruments::waits`]).

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use pumice_ground::outside::files;
use pumice_ground::outside::interface::interfaces;
use pumice_instruments::waits::Standing;
use pumice_share::{Inspected, ShareError, inspect, inspect_waits};

/// All processes that share a UDP port of this network namespace. `folder`: that of the registry, if it is
/// not the usual one; `looks`: each looks what its threads wait for, and tells it when it is asked later.
///
/// # Errors
/// As for [`inspect()`].
pub fn standings(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
    looks: bool,
) -> Result<Vec<Standing>, ShareError> {
    let ask = if looks { inspect_waits } else { inspect };
    Ok(ask(port, folder, patience)?.into_iter().map(standing).collect())
}

fn standing(one: Inspected) -> Standing {
    let has_all = one.sharer.address.is_unspecified();
    let Inspected { sharer, objects } = one;
    let program = files::fact_text(format!("/proc/{}/comm", sharer.pid)).unwrap_or_default();
    Standing {
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

/// All addresses of this host.
fn host_addresses() -> Vec<IpAddr> {
    let all = interfaces().unwrap_or_default().into_iter().flat_map(|interface| interface.addresses);
    all.map(|(address, _)| address).collect()
}

/// Whether a signal, or a debugger, has stopped a process.
fn is_stopped(pid: u32) -> bool {
    let about = files::fact_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before may hold any character.
    let state = about.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

//! Takes two snapshots of all processes.

use std::time::Duration;

use pumice_device::outside;
use pumice_device::process_statuses::process_statuses;
use pumice_device::waits::ProcessStatus;
use serde::{Deserialize, Serialize};

use super::options::HangOptions;
use crate::observe::plain;
use crate::outcome::CommandError;

/// Time for which answers of processes are awaited.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time between snapshots. Processes examine their threads meanwhile, which takes a quarter of a second, and
/// longer on a busy machine.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of snapshots until all processes have examined their threads.
const MAX_SNAPSHOTS: u32 = 20;

/// The snapshots of a host, as `--json` writes and `--with` reads them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HostSnapshots {
    /// Name of the host.
    pub(super) host: String,
    /// Id of the boot and of the pid namespace, in which process ids are unique; empty from an older version.
    #[serde(default)]
    pub(super) place: String,
    /// Processes that are already included, also of other hosts.
    #[serde(skip)]
    pub(super) known: Vec<ProcessKey>,
    /// Processes in the first snapshot.
    pub(super) before: Vec<ProcessStatus>,
    /// Processes in the second snapshot.
    pub(super) processes: Vec<ProcessStatus>,
}

/// A process by the id of its boot and pid namespace, and its process id.
type ProcessKey = (String, u32);

impl HostSnapshots {
    /// Adds the snapshots of a host of this name, without processes that are already included.
    pub(super) fn add(&mut self, other: HostSnapshots, name: &str) {
        if self.known.is_empty() && !self.place.is_empty() {
            let own = self.processes.iter().filter(|one| one.host.is_empty());
            self.known = own.map(|one| (self.place.clone(), one.pid)).collect();
        }
        let known = &self.known;
        let is_new =
            |one: &ProcessStatus| !one.host.is_empty() || !known.contains(&(other.place.clone(), one.pid));
        // Processes of a third host, which the other host included, have that host's name already.
        let named = |one: ProcessStatus| {
            let host = if one.host.is_empty() { name.to_owned() } else { one.host.clone() };
            ProcessStatus { host, ..one }
        };
        let [before, processes] = [&other.before, &other.processes]
            .map(|all| all.iter().filter(|one| is_new(one)).cloned().map(named).collect::<Vec<_>>());
        if !other.place.is_empty() {
            let others = other.processes.iter().filter(|one| one.host.is_empty());
            self.known.extend(others.map(|one| (other.place.clone(), one.pid)));
        }
        self.before.extend(before);
        self.processes.extend(processes);
    }
}

/// Returns the id of the boot and of the pid namespace.
fn place() -> String {
    let boot = outside::files::fact_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim_end(), space.display())
}

/// Takes both snapshots.
pub(super) fn take_snapshots(options: &HangOptions) -> Result<HostSnapshots, CommandError> {
    let before = take_snapshot(options, true)?;
    let mut processes = before.clone();
    for _ in 0..MAX_SNAPSHOTS {
        if before.is_empty() {
            break;
        }
        outside::sleep(SNAPSHOT_INTERVAL);
        processes = take_snapshot(options, false)?;
        if !processes.iter().any(|one| one.must_examine_threads(&before)) {
            break;
        }
    }
    let host = outside::files::fact_text("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(HostSnapshots { host: plain(host.trim_end()), place: place(), known: Vec::new(), before, processes })
}

/// Takes a snapshot. `examines_threads`: each process also examines what its threads wait for, and reports it
/// in the next snapshot.
fn take_snapshot(options: &HangOptions, examines_threads: bool) -> Result<Vec<ProcessStatus>, CommandError> {
    let all = process_statuses(options.port, options.registry.as_deref(), TIMEOUT, examines_threads);
    all.map_err(|error| CommandError::Failed(format!("the processes cannot be asked: {error}")))
}

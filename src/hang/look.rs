//! Two looks at all processes.

use std::time::Duration;

use pumice_device::outside;
use pumice_device::standings::standings;
use pumice_device::waits::Standing;
use serde::{Deserialize, Serialize};

use super::options::HangOptions;
use crate::observe::plain;
use crate::outcome::CommandError;

/// How long processes are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between looks: processes look at their threads meanwhile, which takes a quarter of a second, and longer on
/// a machine with much to do.
const BETWEEN: Duration = Duration::from_millis(500);
/// Looks until all of them have.
const LOOKS: u32 = 20;

/// What a host says: with `--json`, and to `--with`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Looks {
    /// The name of the host.
    pub(super) host: String,
    /// Names where numbers of processes are the same: the boot and the namespace; empty from an older
    /// version.
    #[serde(default)]
    pub(super) place: String,
    /// Processes that are known, with those of other hosts.
    #[serde(skip)]
    pub(super) known: Vec<Known>,
    /// Processes at the first look.
    pub(super) before: Vec<Standing>,
    /// Processes at the second one.
    pub(super) processes: Vec<Standing>,
}

/// A process where its number is its own: its place and its number.
type Known = (String, u32);

impl Looks {
    /// Adds what a host of this name has; those that are known already are not added a second time.
    pub(super) fn add(&mut self, other: Looks, name: &str) {
        if self.known.is_empty() && !self.place.is_empty() {
            let own = self.processes.iter().filter(|one| one.host.is_empty());
            self.known = own.map(|one| (self.place.clone(), one.pid)).collect();
        }
        let known = &self.known;
        let is_new =
            |one: &Standing| !one.host.is_empty() || !known.contains(&(other.place.clone(), one.pid));
        // What the other one knows of a third host has its name already.
        let named = |one: Standing| {
            let host = if one.host.is_empty() { name.to_owned() } else { one.host.clone() };
            Standing { host, ..one }
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

/// The boot and the namespace of process numbers.
fn place() -> String {
    let boot = outside::files::fact_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim_end(), space.display())
}

/// Looks twice.
pub(super) fn look(options: &HangOptions) -> Result<Looks, CommandError> {
    let before = once(options, true)?;
    let mut processes = before.clone();
    for _ in 0..LOOKS {
        if before.is_empty() {
            break;
        }
        outside::sleep(BETWEEN);
        processes = once(options, false)?;
        if !processes.iter().any(|one| one.has_to_look(&before)) {
            break;
        }
    }
    let host = outside::files::fact_text("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(Looks { host: plain(host.trim_end()), place: place(), known: Vec::new(), before, processes })
}

/// `looks`: the processes look what their threads wait for, and tell it at the next look.
fn once(options: &HangOptions, looks: bool) -> Result<Vec<Standing>, CommandError> {
    let all = standings(options.port, options.registry.as_deref(), PATIENCE, looks);
    all.map_err(|error| CommandError::Failed(format!("the processes cannot be asked: {error}")))
}

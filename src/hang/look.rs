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
#[derive(Serialize, Deserialize)]
pub(super) struct Looks {
    /// The name of the host.
    pub(super) host: String,
    /// Processes at the first look.
    pub(super) before: Vec<Standing>,
    /// Processes at the second one.
    pub(super) processes: Vec<Standing>,
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
    Ok(Looks { host: plain(host.trim_end()), before, processes })
}

/// `looks`: the processes look what their threads wait for, and tell it at the next look.
fn once(options: &HangOptions, looks: bool) -> Result<Vec<Standing>, CommandError> {
    let all = standings(options.port, options.registry.as_deref(), PATIENCE, looks);
    all.map_err(|error| CommandError::Failed(format!("the processes cannot be asked: {error}")))
}

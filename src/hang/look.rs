//! Two looks at all processes.

use std::time::Duration;

use pumice_device::outside;
use pumice_device::share::inspect_waits;
use pumice_device::waits::Standing;

use super::{HangOptions, Looks};
use crate::observe::{plain, program};
use crate::outcome::CommandError;

/// How long processes are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between the looks: processes look at their threads meanwhile, which takes a quarter of a second.
const BETWEEN: Duration = Duration::from_millis(800);

/// Looks twice.
pub(super) fn look(options: &HangOptions) -> Result<Looks, CommandError> {
    let before = once(options)?;
    if !before.is_empty() {
        outside::sleep(BETWEEN);
    }
    let processes = once(options)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Looks { host: plain(&host), before, processes })
}

fn once(options: &HangOptions) -> Result<Vec<Standing>, CommandError> {
    let seen = inspect_waits(options.port, options.registry.as_deref(), PATIENCE);
    let seen = seen.map_err(|error| CommandError::Failed(format!("the processes cannot be asked: {error}")))?;
    Ok(seen
        .into_iter()
        .map(|one| {
            let program = program(one.sharer.pid).unwrap_or_default();
            Standing::of(one, program, String::new())
        })
        .collect())
}

//! `--rsocket`: a program's TCP sockets become rsockets.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::sysfs::{LD_PRELOAD, find_preload, preloads};

/// The preload, beside libpumice.so.
const PRELOAD: &str = "libpumice_rsocket.so";

/// Prepares `command` for it. `object` is libpumice.so.
///
/// # Errors
/// A sentence that says why not.
pub(super) fn prepare(object: &Path, command: &mut Command) -> Result<(), String> {
    let preload = find_preload("--rsocket", PRELOAD, object)?;
    // Another option may have put one there.
    let set = command.get_envs().find(|(name, _)| *name == LD_PRELOAD);
    let before = match set {
        Some((_, value)) => value.map(OsString::from),
        None => std::env::var_os(LD_PRELOAD),
    };
    command.env(LD_PRELOAD, preloads(&preload, before));
    Ok(())
}

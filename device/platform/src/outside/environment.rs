//! The environment and the arguments of the program.

use std::env::VarError;
use std::ffi::OsString;
use std::path::PathBuf;

use super::process::outside;

/// Returns a variable, if it is set.
pub fn variable(name: &str) -> Option<OsString> {
    outside().variable(name)
}

/// Returns a variable that has to be text.
///
/// # Errors
/// The variable is not set, or is no UTF-8 text.
pub fn text(name: &str) -> Result<String, VarError> {
    variable(name).ok_or(VarError::NotPresent)?.into_string().map_err(VarError::NotUnicode)
}

/// Returns the arguments of the program, its name first.
pub fn arguments() -> Vec<OsString> {
    outside().arguments()
}

/// Returns the name by which the program was called; empty if it was called without one.
pub fn program() -> OsString {
    arguments().into_iter().next().unwrap_or_default()
}

/// Returns the file of the program; empty if it is not known.
pub fn own_path() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

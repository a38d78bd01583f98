//! The environment and the arguments of the program.

use std::env::VarError;
use std::ffi::OsString;
use std::path::PathBuf;

use super::answers::outside;

/// A variable, if it is set.
pub fn variable(name: &str) -> Option<OsString> {
    outside().variable(name)
}

/// A variable that has to be text.
///
/// # Errors
/// It is not set, or no UTF-8 text.
pub fn text(name: &str) -> Result<String, VarError> {
    variable(name).ok_or(VarError::NotPresent)?.into_string().map_err(VarError::NotUnicode)
}

/// The arguments of the program, its name first.
pub fn arguments() -> Vec<OsString> {
    outside().arguments()
}

/// The name by which the program was called; empty if it was called without one.
pub fn program() -> OsString {
    arguments().into_iter().next().unwrap_or_default()
}

/// The file of the program; empty if that cannot be told.
pub fn own_path() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

//! The folders of `--private`.

use std::path::{Path, PathBuf};

use crate::outcome::CommandError;

/// Refuses a folder that cannot be: a world does not have it, and cannot make it.
pub(super) fn check(folders: &[PathBuf]) -> Result<(), CommandError> {
    let can_be = |folder: &Path| folder.is_dir() || pumice_world::is_in_empty_folder(folder);
    match folders.iter().find(|folder| !can_be(folder)) {
        None => Ok(()),
        Some(folder) => Err(CommandError::Usage(format!(
            "--private {}: there is no such folder: make it, or name another one",
            folder.display()
        ))),
    }
}

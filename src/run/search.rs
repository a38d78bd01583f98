//! Finds programs as a shell does.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::outcome::{CommandError, NO_PROGRAM, NOT_EXECUTABLE};

/// Folders in which execvp(3) searches when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the file of a program that a shell would find.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
    find_in(name, &path)
}

fn find_in(name: &OsStr, search: &OsStr) -> Result<PathBuf, CommandError> {
    let shown = Path::new(name).display();
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        // An empty part means the current folder.
        let folders = std::env::split_paths(search);
        folders
            .map(|folder| if folder.as_os_str().is_empty() { "./".into() } else { folder }.join(name))
            .collect()
    };
    let there = |path: &&PathBuf| !name.is_empty() && fs::symlink_metadata(path).is_ok();
    let runnable = |path: &&PathBuf| path.is_file() && access(path.as_path(), Access::EXEC_OK).is_ok();
    if let Some(path) = candidates.iter().find(runnable) {
        return Ok(path.clone());
    }
    match candidates.iter().find(there) {
        Some(path) if path.is_dir() => Err(CommandError::Program {
            sentence: format!("{} is a folder, not a program", path.display()),
            exit_code: NOT_EXECUTABLE,
        }),
        Some(path) if path.exists() => Err(CommandError::Program {
            sentence: format!("{} may not be executed: chmod +x it, if it is a program", path.display()),
            exit_code: NOT_EXECUTABLE,
        }),
        _ => {
            let remedy = if name.as_bytes().contains(&b'/') { "check its path" } else { "it is not in PATH" };
            let sentence = format!("there is no program {shown}: {remedy}");
            Err(CommandError::Program { sentence, exit_code: NO_PROGRAM })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(name: &str, search: &str) -> u8 {
        match find_in(OsStr::new(name), OsStr::new(search)) {
            Err(CommandError::Program { exit_code, .. }) => exit_code,
            Err(other) => panic!("{other}"),
            Ok(_) => 0,
        }
    }

    #[test]
    fn programs_are_found_as_shells_find_them() {
        assert_eq!(code("sh", "/nowhere:/bin"), 0);
        assert_eq!(code("sh", "/nowhere"), 127);
        assert_eq!(code("", "/bin"), 127);
        assert_eq!(code("/bin/sh", ""), 0);
        assert_eq!(code("/bin/no-such-program", "/bin"), 127);
        assert_eq!(code("/etc/passwd", "/bin"), 126);
        assert_eq!(code("passwd", "/etc:/nowhere"), 126);
        assert_eq!(code("/etc", "/bin"), 126);
    }
}

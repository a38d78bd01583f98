//! Finds this program's file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::search::find;

/// Returns this program's file. Without /proc, which some containers lack, it is searched as a shell would.
///
/// # Errors
/// A sentence: neither way finds it.
pub(crate) fn own_program() -> Result<PathBuf, String> {
    let error = match std::env::current_exe() {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    let called = std::env::args_os().next().unwrap_or_default();
    called_as(&called).ok_or_else(|| {
        format!(
            "this program cannot find itself, neither by /proc ({error}) nor as {}: mount /proc, or name it \
             by its path",
            Path::new(&called).display()
        )
    })
}

/// Returns the file of a program that was called by this name, with links in its path resolved.
fn called_as(name: &OsStr) -> Option<PathBuf> {
    let found = find(name).ok()?;
    found.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_the_name_that_it_was_called_by() {
        let own = std::env::current_exe().expect("Linux");
        assert_eq!(called_as(own.as_os_str()), own.canonicalize().ok());
        assert!(called_as(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(called_as(OsStr::new("no-such-program-anywhere")), None);
    }
}

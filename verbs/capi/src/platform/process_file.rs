//! Output files that each of several processes has for itself: captures and reports.

use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::output_file::open_private;

use super::process::current_pid;

/// The file of the process, once there is one.
pub(crate) type WrittenPath = PerProcess<Mutex<Option<PathBuf>>>;

/// Opens the file of this process for a pattern; `close` closes the file that an earlier device of this
/// process has open.
///
/// The file replaces an older one. While another process writes to it, this one takes a file beside it, with
/// the process number in the name. A process that opens its device again continues its file. Only this user
/// may read it.
pub(crate) fn open_process_file(
    pattern: &Path,
    written: &WrittenPath,
    close: impl FnOnce(),
) -> io::Result<(File, PathBuf)> {
    open_process_file_by(pattern, written, close, open_private)
}

/// Opens the file as [`open_process_file`] does; `open` opens a file for writing, or makes it, and does not
/// truncate it.
pub(crate) fn open_process_file_by(
    pattern: &Path,
    written: &WrittenPath,
    close: impl FnOnce(),
    open: impl Fn(&Path) -> io::Result<File>,
) -> io::Result<(File, PathBuf)> {
    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
    let own = current_pid();
    if let Some(path) = &*written {
        close();
        let mut file = open(path)?;
        // The file belongs to this process: another process that has the lock got it between two devices of
        // this one and has taken the file.
        if file.try_lock().is_ok() {
            if file.metadata()?.is_file() {
                file.seek(SeekFrom::End(0))?;
            }
            return Ok((file, path.clone()));
        }
    }
    let mut path = expand(pattern, own);
    let mut file = open(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            path = with_process_number(&path, own);
            file = open(&path)?;
        }
        // The file system has no locks.
        Err(TryLockError::Error(_)) => {}
    }
    // Pipes and devices (such as /dev/null) cannot be truncated.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    *written = Some(path.clone());
    Ok((file, path))
}

/// Returns the pattern with the process number for each `%p`.
pub(crate) fn expand(pattern: &Path, process: u32) -> PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let number = process.to_string();
    let mut bytes = Vec::new();
    let mut rest: &[u8] = OsStr::as_bytes(pattern.as_os_str());
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%p") {
            bytes.extend_from_slice(number.as_bytes());
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Adds the process number: "trace.pcapng" becomes "trace.17.pcapng".
fn with_process_number(path: &Path, process: u32) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{process}.{}", extension.to_string_lossy())),
        None => path.with_extension(process.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_the_process() {
        assert_eq!(expand(Path::new("/a/%p/x-%p.pcapng"), 17), Path::new("/a/17/x-17.pcapng"));
        assert_eq!(expand(Path::new("%"), 17), Path::new("%"));
        assert_eq!(
            with_process_number(Path::new("/a.b/trace.pcapng"), 17),
            Path::new("/a.b/trace.17.pcapng")
        );
        assert_eq!(with_process_number(Path::new("trace"), 17), Path::new("trace.17"));
    }
}

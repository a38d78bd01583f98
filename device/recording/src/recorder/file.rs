//! The file of a trace: private, and the user's own.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use pumice_platform::outside;

/// Access rights: only the owner reads and writes the file, because a trace shows what a program does, and
/// when.
const PRIVATE: u32 = 0o600;

/// Opens a file for writing that only this user may read, and creates it if it does not exist. Existing
/// contents stay.
///
/// # Errors
/// Fails if it cannot be opened, or if it is a symbolic link, not a regular file, or another user's.
pub fn create_private(path: &Path) -> io::Result<File> {
    // Opening a pipe without a reader must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut options = outside::files::options();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE).custom_flags(flags);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused("it is a symbolic link, which is not followed: name the file itself"),
        _ => error,
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(refused("it is no regular file: name a file"));
    }
    if about.uid() != outside::process::effective_user() {
        return Err(refused("the file is another user's: remove it, or name another one"));
    }
    if about.mode() & 0o7777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

fn refused(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

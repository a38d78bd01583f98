//! Files of the system, whose contents are facts and may be replaced ([`fact`]), and files of users. Links,
//! lists and rights are the machine's.

use std::fs::{self, File, Metadata, OpenOptions, Permissions, ReadDir};
use std::io;
use std::path::{Path, PathBuf};

use super::process::outside;

/// Returns the bytes of a system file, such as one in /proc or /sys.
///
/// # Errors
/// The system's error.
pub fn fact(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    outside().file(path.as_ref())
}

/// Returns the text of a system file, such as one in /proc or /sys.
///
/// # Errors
/// The system's error; InvalidData: the file is no UTF-8 text.
pub fn fact_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(fact(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns the target of a symbolic link of the system.
///
/// # Errors
/// The system's error.
pub fn link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::read_link(path)
}

/// Opens a file for reading.
///
/// # Errors
/// The system's error.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Returns the options for opening a file in another way.
pub fn options() -> OpenOptions {
    OpenOptions::new()
}

/// Returns the bytes of a user's file.
///
/// # Errors
/// The system's error.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Writes a whole file.
///
/// # Errors
/// The system's error.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(path, bytes)
}

/// Gives a file another name.
///
/// # Errors
/// The system's error.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    fs::rename(from, to)
}

/// Removes a name of a file.
///
/// # Errors
/// The system's error.
pub fn remove(path: impl AsRef<Path>) -> io::Result<()> {
    fs::remove_file(path)
}

/// Creates a folder, and those above it.
///
/// # Errors
/// The system's error.
pub fn make_folders(path: impl AsRef<Path>) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Removes an empty folder.
///
/// # Errors
/// The system's error.
pub fn remove_folder(path: impl AsRef<Path>) -> io::Result<()> {
    fs::remove_dir(path)
}

/// Returns the entries of a folder.
///
/// # Errors
/// The system's error.
pub fn list(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    fs::read_dir(path)
}

/// Returns the metadata of the file that a path leads to.
///
/// # Errors
/// The system's error.
pub fn about(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// Returns the metadata of a name, which may be a symbolic link.
///
/// # Errors
/// The system's error.
pub fn about_name(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::symlink_metadata(path)
}

/// Sets the access rights.
///
/// # Errors
/// The system's error.
pub fn set_rights(path: impl AsRef<Path>, rights: Permissions) -> io::Result<()> {
    fs::set_permissions(path, rights)
}

/// Returns a path without symbolic links.
///
/// # Errors
/// The system's error.
pub fn real_path(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Reports whether a folder is in a memory file system.
pub fn is_in_memory(folder: impl AsRef<Path>) -> bool {
    rustix::fs::statfs(folder.as_ref()).is_ok_and(|about| about.f_type == libc::TMPFS_MAGIC)
}

//! Files: those that the system keeps, whose contents are facts and may be answered otherwise ([`fact`]), and
//! those of users. Links, lists and rights are the machine's.

use std::fs::{self, File, Metadata, OpenOptions, Permissions, ReadDir};
use std::io;
use std::path::{Path, PathBuf};

use super::answers::outside;

/// The bytes of a file that the system keeps, such as one in /proc or /sys.
///
/// # Errors
/// What the system says.
pub fn fact(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    outside().file(path.as_ref())
}

/// The text of a file that the system keeps, such as one in /proc or /sys.
///
/// # Errors
/// What the system says; InvalidData: it is no UTF-8 text.
pub fn fact_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(fact(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// What a link of the system's leads to.
///
/// # Errors
/// What the system says.
pub fn link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::read_link(path)
}

/// Opens a file for reading.
///
/// # Errors
/// What the system says.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// How to open a file otherwise.
pub fn options() -> OpenOptions {
    OpenOptions::new()
}

/// The bytes of a user's file.
///
/// # Errors
/// What the system says.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Writes a whole file.
///
/// # Errors
/// What the system says.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(path, bytes)
}

/// Gives a file another name.
///
/// # Errors
/// What the system says.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    fs::rename(from, to)
}

/// Removes a name of a file.
///
/// # Errors
/// What the system says.
pub fn remove(path: impl AsRef<Path>) -> io::Result<()> {
    fs::remove_file(path)
}

/// Makes a folder, and those around it.
///
/// # Errors
/// What the system says.
pub fn make_folders(path: impl AsRef<Path>) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Removes an empty folder.
///
/// # Errors
/// What the system says.
pub fn remove_folder(path: impl AsRef<Path>) -> io::Result<()> {
    fs::remove_dir(path)
}

/// What a folder has.
///
/// # Errors
/// What the system says.
pub fn list(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    fs::read_dir(path)
}

/// What the file system says about what a path leads to.
///
/// # Errors
/// What the system says.
pub fn about(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::metadata(path)
}

/// What the file system says about a name, which may be a link.
///
/// # Errors
/// What the system says.
pub fn about_name(path: impl AsRef<Path>) -> io::Result<Metadata> {
    fs::symlink_metadata(path)
}

/// Sets the access rights.
///
/// # Errors
/// What the system says.
pub fn set_rights(path: impl AsRef<Path>, rights: Permissions) -> io::Result<()> {
    fs::set_permissions(path, rights)
}

/// A path without links in it.
///
/// # Errors
/// What the system says.
pub fn real_path(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// Whether a folder is of a file system in memory.
pub fn is_in_memory(folder: impl AsRef<Path>) -> bool {
    rustix::fs::statfs(folder.as_ref()).is_ok_and(|about| about.f_type == libc::TMPFS_MAGIC)
}

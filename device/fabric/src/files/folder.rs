//! Folders and files that processes share, opened so that no other user can replace or change them.

use std::io;
use std::path::{Path, PathBuf};

use pumice_platform::outside;

use crate::members::error::SharingError;
use crate::members::member_index::MemberIndex;
use crate::members::process;
use crate::system::{self, File, FileInfo, OpenFolder};

/// Number of times that a file may be removed between its opening and its check. Each time another process
/// has to end in that moment.
const REMOVALS: u32 = 1000;

/// Reports whether a folder is on a file system in memory.
pub(crate) fn is_in_memory(folder: &Path) -> bool {
    outside::files::is_in_memory(folder)
}

/// Returns the name of the registry of a UDP port in this network namespace.
pub(crate) fn file_name(port: u16) -> String {
    format!("udp{port}-net{}", process::network_namespace())
}

/// Returns the name of the file beside the registry with the backlogs of the processes that share the port.
pub(crate) fn backlog_name(port: u16) -> String {
    format!("{}-backlog", file_name(port))
}

/// Returns the name of the registry that belongs to a backlog file of this UDP port in another network
/// namespace.
pub(crate) fn registry_of_backlog(name: &str, port: u16) -> Option<&str> {
    let registry = name.strip_suffix("-backlog")?;
    let is_of_port = registry.strip_prefix(&format!("udp{port}-net")).is_some_and(|rest| !rest.is_empty());
    (is_of_port && registry != file_name(port)).then_some(registry)
}

/// Returns the name of the socket of a member. `stem` is the name of the registry.
pub(crate) fn member_socket_name(stem: &str, member: MemberIndex) -> String {
    format!("{}{member}", member_socket_stem(stem))
}

/// Returns the prefix of the names of members' sockets. Processes of older versions, which share the same
/// registry, find them by this name.
pub(crate) fn member_socket_stem(stem: &str) -> String {
    format!("{stem}-slot")
}

/// Opens a file of a folder, and creates both if they do not exist.
///
/// # Errors
/// Fails if another user could change them, or if the operating system refuses.
pub(crate) fn open(folder: &Path, name: &str) -> Result<File, SharingError> {
    Folder::open(folder)?.file(name)
}

/// A folder that only this user may enter, held open.
///
/// **Invariant**: its owner and its mode were checked through the descriptor, and everything in it is reached
/// through the descriptor. So a file or a socket in it was made by this user (or by root), even if another
/// user gives the folder's name to a folder of his own later.
#[derive(Debug)]
pub(crate) struct Folder {
    opened: OpenFolder,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if another user could change it, or if the operating system refuses.
    pub(crate) fn open(path: &Path) -> Result<Folder, SharingError> {
        make_folder(path)?;
        Folder::existing(path)
    }

    /// Opens an existing folder.
    ///
    /// # Errors
    /// Fails as [`open`](Folder::open) does, and if the folder does not exist.
    pub(crate) fn existing(path: &Path) -> Result<Folder, SharingError> {
        Ok(Folder { opened: open_folder(path)?, path: path.to_owned() })
    }

    /// Opens a file of the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if another user could change it, if the operating system refuses, or if other processes remove
    /// the file again and again.
    pub(crate) fn file(&self, name: &str) -> Result<File, SharingError> {
        let path = self.path.join(name);
        for _ in 0..REMOVALS {
            let file = self.opened.open_file(name).map_err(failed("open the file", path.clone()))?;
            let about = file.about().map_err(failed("look at the file", path.clone()))?;
            // The last process that used the file removed it after this one had opened it: the name now
            // belongs to no file, or to a new one.
            if about.is_file && about.names == 0 {
                continue;
            }
            check(&path, &about, about.is_file && about.names == 1)?;
            return Ok(file);
        }
        let removed = io::Error::from_raw_os_error(libc::ESTALE);
        Err(failed("open the file before another process removes it", path)(removed))
    }

    /// Returns the folder itself, for sockets that have names in it.
    pub(crate) fn opened(&self) -> &OpenFolder {
        &self.opened
    }

    /// Removes an entry if it exists.
    pub(crate) fn remove(&self, name: &str) {
        // An entry that cannot be removed stays; the next process that tries to make it reports the error.
        let _ = self.opened.remove(name);
    }

    /// Returns the names of all entries; none if the folder cannot be listed.
    pub(crate) fn names(&self) -> Vec<String> {
        self.opened.names().unwrap_or_default()
    }
}

/// Makes a folder that only this user may enter.
fn make_folder(path: &Path) -> Result<(), SharingError> {
    match system::create_folder(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed("make the folder", path.to_owned())(error))
        }
        _ => Ok(()),
    }
}

/// Opens a folder and checks that only this user may enter it.
fn open_folder(path: &Path) -> Result<OpenFolder, SharingError> {
    let opened = OpenFolder::open(path).map_err(failed("open the folder", path.to_owned()))?;
    let about = opened.about().map_err(failed("look at the folder", path.to_owned()))?;
    check(path, &about, about.is_folder)?;
    // In a user namespace, all users without a number of their own appear as one user, perhaps as this one.
    // But only the owner may set the mode.
    if process::may_be_several_users(about.uid) && opened.set_mode(0o700).is_err() {
        return Err(another_users(path, about.uid));
    }
    Ok(opened)
}

fn failed(step: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> SharingError {
    move |source| SharingError::Os { step, path: Some(path), source }
}

fn check(path: &Path, about: &FileInfo, right_kind: bool) -> Result<(), SharingError> {
    let problem = if !right_kind {
        "it is not what it should be (a folder, or a file with one name); remove it"
    } else if about.uid != process::effective_uid() {
        return Err(another_users(path, about.uid));
    } else if about.mode & 0o077 != 0 {
        "other users may access it; chmod go-rwx it"
    } else {
        return Ok(());
    };
    Err(SharingError::Untrusted { path: path.to_owned(), problem: problem.to_owned() })
}

fn another_users(path: &Path, uid: u32) -> SharingError {
    let problem = format!(
        "it belongs to another user (uid {uid}); have it removed, or set XDG_RUNTIME_DIR to a folder of yours"
    );
    SharingError::Untrusted { path: path.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn only_what_is_ours_alone_is_used() {
        let top = std::env::temp_dir().join(format!("pumice-folder-test-{}", std::process::id()));
        fs::create_dir(&top).unwrap();
        let folder = top.join("share");
        assert_eq!(open(&folder, "x").unwrap().about().unwrap().mode & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);

        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let error = open(&folder, "x").unwrap_err();
        assert!(
            matches!(error, SharingError::Untrusted { .. }) && error.to_string().contains("chmod"),
            "{error}"
        );
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();

        symlink(folder.join("x"), folder.join("link")).unwrap();
        assert_eq!(open(&folder, "link").unwrap_err().errno(), libc::ELOOP);
        symlink(&folder, top.join("way")).unwrap();
        assert!(matches!(open(&top.join("way"), "x"), Err(SharingError::Os { .. })));
        fs::hard_link(folder.join("x"), folder.join("again")).unwrap();
        assert!(matches!(open(&folder, "x"), Err(SharingError::Untrusted { .. })));
        fs::create_dir(folder.join("folder")).unwrap();
        assert_eq!(open(&folder, "folder").unwrap_err().errno(), libc::EISDIR);
        fs::remove_dir_all(&top).unwrap();
    }
}

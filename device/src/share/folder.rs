//! Where the registry is, and opening it so that no other user can have a hand in it.

use std::ffi::CString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::ShareError;
use super::process;

/// The folder for this user's registries: below $XDG_RUNTIME_DIR, /run/user/UID (for sessions that were not
/// told, such as cron's), or else in /tmp.
pub(super) fn default_folder() -> PathBuf {
    let uid = process::effective_uid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let ours = |path: &PathBuf| {
        // Not another user's, which `su` leaves in the environment.
        std::fs::metadata(path)
            .is_ok_and(|about| about.is_dir() && about.uid() == uid && about.mode() & 0o300 == 0o300)
    };
    match given.into_iter().chain([usual]).find(ours) {
        Some(runtime) => runtime.join("pumice"),
        None => PathBuf::from(format!("/tmp/pumice-{uid}")),
    }
}

/// Where this user's processes keep what they write for every batch of packets: the folder of the registries if
/// that is in memory, else one in /dev/shm. A write to a disk's file may wait for the disk, now and then for seconds.
pub(super) fn memory_folder(registries: &Path) -> PathBuf {
    let shared_memory = Path::new("/dev/shm");
    // The folder itself may not have been made yet.
    let holder = registries.parent().unwrap_or(registries);
    if !is_in_memory(holder) && is_in_memory(shared_memory) {
        shared_memory.join(format!("pumice-{}", process::effective_uid()))
    } else {
        registries.to_owned()
    }
}

/// Whether a folder is of a file system in memory.
fn is_in_memory(folder: &Path) -> bool {
    let Ok(name) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the name is NUL-terminated and lives through the call, which fills in the structure if it succeeds.
    let kind = unsafe {
        if libc::statfs(name.as_ptr(), about.as_mut_ptr()) != 0 {
            return false;
        }
        about.assume_init().f_type
    };
    kind == libc::TMPFS_MAGIC
}

/// The name of the registry of a UDP port of this network namespace.
pub(super) fn file_name(port: u16) -> String {
    format!("udp{port}-net{}", process::network_namespace())
}

/// The name of the file beside it with the backlogs of those who share the port.
pub(super) fn backlog_name(port: u16) -> String {
    format!("{}-backlog", file_name(port))
}

/// The name of the registry beside a file with backlogs of this UDP port in another network namespace.
pub(super) fn registry_of_backlog(name: &str, port: u16) -> Option<&str> {
    let registry = name.strip_suffix("-backlog")?;
    let is_of_port = registry.strip_prefix(&format!("udp{port}-net")).is_some_and(|rest| !rest.is_empty());
    (is_of_port && registry != file_name(port)).then_some(registry)
}

/// A folder of this user that nobody else may change, made if it is not there: the one with the registries.
///
/// # Errors
/// Another user could change it; the operating system refuses.
pub fn runtime_folder() -> Result<PathBuf, ShareError> {
    let folder = default_folder();
    open_folder(&folder)?;
    Ok(folder)
}

/// Opens the registry, making it and its folder when they are not there.
///
/// # Errors
/// Another user could change them; the operating system refuses.
pub(super) fn open(folder: &Path, name: &str) -> Result<File, ShareError> {
    let opened = open_folder(folder)?;
    let path = folder.join(name);
    let file = open_at(&opened, name).map_err(failed("open the registry", path.clone()))?;
    let about = file.metadata().map_err(failed("look at the registry", path.clone()))?;
    check(&path, &about, about.is_file() && about.nlink() == 1)?;
    Ok(file)
}

/// Opens a folder of this user alone, making it when it is not there.
fn open_folder(folder: &Path) -> Result<File, ShareError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("make the folder", folder.to_owned())(error));
        }
        _ => {}
    }
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(folder)
        .map_err(failed("open the folder", folder.to_owned()))?;
    let about = opened.metadata().map_err(failed("look at the folder", folder.to_owned()))?;
    check(folder, &about, about.is_dir())?;
    Ok(opened)
}

fn failed(step: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> ShareError {
    move |source| ShareError::Os { step, path: Some(path), source }
}

fn check(path: &Path, about: &Metadata, right_kind: bool) -> Result<(), ShareError> {
    let problem = if !right_kind {
        "it is not what it should be (a folder, or a file with one name); remove it"
    } else if about.uid() != process::effective_uid() {
        "it belongs to another user; have it removed, or set XDG_RUNTIME_DIR to a folder of yours"
    } else if about.mode() & 0o077 != 0 {
        "other users may access it; chmod go-rwx it"
    } else {
        return Ok(());
    };
    Err(ShareError::Untrusted { path: path.to_owned(), problem })
}

/// Opens a file of a folder that was looked at, whatever its path leads to by now.
fn open_at(folder: &File, name: &str) -> io::Result<File> {
    let name = CString::new(std::ffi::OsStr::new(name).as_bytes())?;
    // O_NONBLOCK: a FIFO put there must not stop us.
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the name is NUL-terminated and lives through the call.
    let fd = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, 0o600) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_what_is_ours_alone_is_used() {
        let top = std::env::temp_dir().join(format!("pumice-folder-test-{}", std::process::id()));
        fs::create_dir(&top).unwrap();
        let folder = top.join("share");
        assert_eq!(open(&folder, "x").unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);

        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let error = open(&folder, "x").unwrap_err();
        assert!(
            matches!(error, ShareError::Untrusted { .. }) && error.to_string().contains("chmod"),
            "{error}"
        );
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();

        symlink(folder.join("x"), folder.join("link")).unwrap();
        assert_eq!(open(&folder, "link").unwrap_err().errno(), libc::ELOOP);
        symlink(&folder, top.join("way")).unwrap();
        assert!(matches!(open(&top.join("way"), "x"), Err(ShareError::Os { .. })));
        fs::hard_link(folder.join("x"), folder.join("again")).unwrap();
        assert!(matches!(open(&folder, "x"), Err(ShareError::Untrusted { .. })));
        fs::create_dir(folder.join("folder")).unwrap();
        assert_eq!(open(&folder, "folder").unwrap_err().errno(), libc::EISDIR);
        fs::remove_dir_all(&top).unwrap();
    }
}

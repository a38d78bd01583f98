//! libpumice.so and its preloads embedded in this program, for `cargo install`, which installs only programs.
//! They are unpacked into this user's private folder when nothing is installed beside the program.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use pumice_device::sharing::runtime_folder;
use rustix::fs::{StatVfsMountFlags, statvfs};

/// A digest, and the bytes; `None` if the object is not embedded.
type EmbeddedObject = Option<(u64, &'static [u8])>;

/// The objects by name. A debug build embeds none: each change would be linked twice, and the objects are
/// beside the program.
#[cfg(all(feature = "carried", not(debug_assertions)))]
const OBJECTS: [(&str, EmbeddedObject); 4] = [
    ("libpumice.so", pumice_carry::embedded_objects!("pumice")),
    ("libpumice_sysfs.so", pumice_carry::embedded_objects!("pumice_sysfs")),
    ("libpumice_rsocket.so", pumice_carry::embedded_objects!("pumice_rsocket")),
    ("libpumice_check.so", pumice_carry::embedded_objects!("pumice_check")),
];
#[cfg(not(all(feature = "carried", not(debug_assertions))))]
const OBJECTS: [(&str, EmbeddedObject); 0] = [];

/// Unpacks the objects and returns their folder; `None` if this program has none.
///
/// # Errors
/// A sentence: there is no private folder, or programs may not be loaded from it.
pub(super) fn unpack() -> Result<Option<PathBuf>, String> {
    if OBJECTS.iter().all(|(_, object)| object.is_none()) {
        return Ok(None);
    }
    let runtime = runtime_folder().map_err(|error| error.to_string())?;
    unpack_into(&runtime, &OBJECTS).map(Some)
}

/// Unpacks the objects into a folder named after their digests, so that objects in use never change.
fn unpack_into(runtime: &Path, objects: &[(&str, EmbeddedObject)]) -> Result<PathBuf, String> {
    let digest = objects.iter().fold(0_u64, |sum, (_, object)| {
        sum.rotate_left(7) ^ object.map_or(0, |(digest, bytes)| digest ^ bytes.len() as u64)
    });
    let folder = runtime.join(format!("carried-{digest:016x}"));
    let refused = |error: io::Error| {
        format!(
            "the libraries of this program cannot be unpacked into {}: {error}: set XDG_RUNTIME_DIR to a \
             folder of yours with room",
            folder.display()
        )
    };
    make(&folder).map_err(refused)?;
    for (name, object) in objects {
        if let Some((_, bytes)) = object {
            put(&folder, name, bytes).map_err(refused)?;
        }
    }
    let flags = statvfs(&folder).map_err(|error| refused(error.into()))?.f_flag;
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        return Err(format!(
            "the system loads no library from {} (it is mounted noexec): set XDG_RUNTIME_DIR to a folder of \
             yours on another file system",
            folder.display()
        ));
    }
    Ok(folder)
}

/// Creates the folder, for this user alone, if it does not exist.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = fs::symlink_metadata(folder)?;
    let is_private = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o077 == 0;
    if about.is_dir() && is_private { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Writes a file unless it exists with the right size.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = folder.join(name);
    if fs::symlink_metadata(&file).is_ok_and(|about| about.is_file() && about.len() == bytes.len() as u64) {
        return Ok(());
    }
    // The file is renamed into place, so that a program that starts meanwhile finds all of it or nothing.
    let fresh = folder.join(format!(".{name}-{}", std::process::id()));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o500).open(&fresh)?.write_all(bytes)?;
    fs::rename(&fresh, &file)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pumice-carried-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn objects_are_unpacked_once_whole_and_privately() {
        let runtime = scratch("once");
        let objects: [(&str, EmbeddedObject); 3] =
            [("one.so", Some((1, b"first"))), ("two.so", Some((2, b"second"))), ("none.so", None)];
        let folder = unpack_into(&runtime, &objects).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read(folder.join("one.so")).unwrap(), b"first");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        // A truncated file is written again, and a complete one stays.
        let before = fs::metadata(folder.join("two.so")).unwrap().ino();
        fs::remove_file(folder.join("one.so")).unwrap();
        fs::write(folder.join("one.so"), "fi").unwrap();
        assert_eq!(unpack_into(&runtime, &objects).unwrap(), folder);
        assert_eq!(fs::read(folder.join("one.so")).unwrap(), b"first");
        assert_eq!(fs::metadata(folder.join("two.so")).unwrap().ino(), before);
        // Other objects get another folder.
        let other = unpack_into(&runtime, &[("one.so", Some((3, b"third")))]).unwrap();
        assert_ne!(other, folder);
        fs::remove_dir_all(&runtime).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let runtime = scratch("others");
        let objects: [(&str, EmbeddedObject); 1] = [("one.so", Some((1, b"first")))];
        let folder = unpack_into(&runtime, &objects).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        assert!(unpack_into(&runtime, &objects).unwrap_err().contains("set XDG_RUNTIME_DIR"));
        fs::remove_dir_all(&runtime).unwrap();
    }

    #[test]
    fn a_debug_build_carries_nothing() {
        assert!(!cfg!(debug_assertions) || unpack() == Ok(None));
    }
}

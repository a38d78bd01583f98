//! Trees and their names; writing a tree, and repairing one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_platform::outside;

use super::{SysfsDevice, SysfsEntry};

/// A tree. Paths are relative to its folder: `sys/class/infiniband`, `dev/infiniband`, ….
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sysfs {
    pub(super) entries: BTreeMap<String, SysfsEntry>,
}

impl Sysfs {
    /// Creates the tree of these devices.
    pub fn of(devices: &[SysfsDevice<'_>]) -> Sysfs {
        Sysfs { entries: devices.iter().flat_map(super::entries).collect() }
    }

    /// Returns a name for its folder. Other contents have another name, so a tree that is in use never
    /// changes.
    pub fn folder_name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        format!("sysfs-{:016x}", hasher.finish())
    }

    /// Makes the tree in a folder, or what is missing of it or different: then it is complete. Other
    /// processes may be writing the same tree, or reading it: each file appears at once. Other contents of
    /// the folder stay.
    ///
    /// # Errors
    /// Fails if the operating system refuses.
    pub fn write(&self, folder: &Path) -> Result<(), SysfsError> {
        for (path, entry) in &self.entries {
            let path = folder.join(path);
            make(folder, &path, entry).map_err(|source| SysfsError { path, source })?;
        }
        Ok(())
    }
}

/// A file of the tree that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {source}", .path.display())]
pub struct SysfsError {
    /// Path of the file.
    pub path: PathBuf,
    /// Error of the operating system.
    pub source: io::Error,
}

fn make(folder: &Path, path: &Path, entry: &SysfsEntry) -> io::Result<()> {
    let there = match entry {
        SysfsEntry::Folder => return outside::files::make_folders(path),
        SysfsEntry::File(text) => outside::files::read(path).is_ok_and(|found| found == text.as_bytes()),
        SysfsEntry::Bytes(bytes) => outside::files::read(path).is_ok_and(|found| found == *bytes),
        SysfsEntry::Link(target) => outside::files::link(path).is_ok_and(|found| found == Path::new(target)),
    };
    if there {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        outside::files::make_folders(parent)?;
    }
    // A name of this call's own, where processes that list folders of the tree do not see it.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let fresh = folder.join(format!(".new-{}-{number}", outside::process::number()));
    let made = match entry {
        SysfsEntry::Link(target) => symlink(target, &fresh),
        SysfsEntry::File(text) => outside::files::write(&fresh, text),
        SysfsEntry::Bytes(bytes) => outside::files::write(&fresh, bytes),
        SysfsEntry::Folder => Ok(()),
    };
    made.and_then(|()| outside::files::rename(&fresh, path)).inspect_err(|_| {
        // The file may not even exist.
        let _ = outside::files::remove(&fresh);
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    fn tree(text: &str) -> Sysfs {
        let entries = [
            ("sys/a/file", SysfsEntry::File(text.to_owned())),
            ("sys/link", SysfsEntry::Link("a/file".to_owned())),
            ("sys/empty", SysfsEntry::Folder),
        ];
        Sysfs { entries: BTreeMap::from(entries.map(|(path, entry)| (path.to_owned(), entry))) }
    }

    #[test]
    fn a_tree_is_written_found_again_and_mended() {
        let folder = std::env::temp_dir().join(format!("pumice-sysfs-test-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let tree = tree("text\n");
        tree.write(&folder).unwrap();
        assert_eq!(fs::read(folder.join("sys/link")).unwrap(), b"text\n");
        assert_eq!(fs::read_dir(folder.join("sys/empty")).unwrap().count(), 0);
        let written = |path: &str| fs::symlink_metadata(folder.join(path)).unwrap().modified().unwrap();
        let before = (written("sys/a/file"), written("sys/link"));
        tree.write(&folder).unwrap();
        assert_eq!((written("sys/a/file"), written("sys/link")), before, "what is right stays");

        fs::remove_file(folder.join("sys/link")).unwrap();
        fs::write(folder.join("sys/a/file"), "te").unwrap();
        fs::remove_dir(folder.join("sys/empty")).unwrap();
        tree.write(&folder).unwrap();
        assert_eq!(fs::read(folder.join("sys/link")).unwrap(), b"text\n");
        assert!(folder.join("sys/empty").is_dir());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");

        fs::remove_file(folder.join("sys/link")).unwrap();
        fs::create_dir_all(folder.join("sys/link/in-the-way")).unwrap();
        let error = tree.write(&folder).unwrap_err();
        assert!(error.to_string().contains("sys/link cannot be written"), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_tree_has_another_name() {
        assert_eq!(tree("1").folder_name(), tree("1").folder_name());
        assert_ne!(tree("1").folder_name(), tree("2").folder_name());
    }
}

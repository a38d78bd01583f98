//! The folder for files that this user's processes write for every batch of packets. It is in memory, because
//! a write to a file on disk may wait for the disk, now and then for seconds.
//!
//! It is the folder of the registry if that is in memory. Else it is a folder in /dev/shm, where any user may
//! create names: its name is a random number, which a file beside the registry records. It is created when it
//! is first needed, and the last process that leaves in good order removes it.

use std::path::{Path, PathBuf};

use pumice_platform::outside;

use super::membership::Membership;
use crate::files::folder;
use crate::files::folder::Folder;
use crate::members::error::SharingError;
use crate::members::process;
use crate::system;

/// Number of names that are tried. Each is free unless another process has guessed 64 random bits.
const TRIES: u32 = 4;
/// Length of the longest name that is read from the file, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The location of the folder, as far as it is known before the folder is needed.
#[derive(Debug)]
pub(crate) enum MemoryFolder {
    /// The folder of the registry.
    Registry(PathBuf),
    /// A folder in `parent`, whose name the file `record` in `registries` contains.
    Recorded { registries: PathBuf, record: String, parent: PathBuf },
}

impl MemoryFolder {
    /// Chooses the folder that goes with the registry of a UDP port in the folder `registries`.
    pub(crate) fn of(registries: &Path, port: u16) -> MemoryFolder {
        let parent = Path::new("/dev/shm");
        if folder::is_in_memory(registries) || !folder::is_in_memory(parent) {
            return MemoryFolder::Registry(registries.to_owned());
        }
        MemoryFolder::Recorded {
            registries: registries.to_owned(),
            record: format!("{}-memory", folder::file_name(port)),
            parent: parent.to_owned(),
        }
    }

    /// Returns the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns a sentence if the processes that share the port have a folder that this process cannot see.
    pub(crate) fn find(&self, membership: &Membership) -> Result<PathBuf, &'static str> {
        let (registries, record, parent) = match self {
            MemoryFolder::Registry(folder) => return Ok(folder.clone()),
            MemoryFolder::Recorded { registries, record, parent } => (registries, record, parent),
        };
        let recorded =
            || Some(parent.join(read(registries, record)?)).filter(|path| Folder::existing(path).is_ok());
        if let Some(path) = recorded() {
            return Ok(path);
        }
        membership
            .with_lock(|membership| {
                if let Some(path) = recorded() {
                    return Ok(path);
                }
                if read(registries, record).is_some() && !membership.is_alone() {
                    return Err(
                        "the processes that share the port have another /dev/shm: set XDG_RUNTIME_DIR of \
                        all of them \
                         to one folder in memory",
                    );
                }
                // Without a folder in memory, that of the registry is used: it is private as well.
                Ok(make(registries, record, parent).unwrap_or_else(|_| registries.clone()))
            })
            .unwrap_or(Err("the registry of the shared port stays locked"))
    }

    /// Reports whether a separate folder exists.
    pub(crate) fn is_made(&self) -> bool {
        let MemoryFolder::Recorded { registries, record, .. } = self else { return false };
        system::exists(&registries.join(record))
    }

    /// Removes the folder if it is empty. The registry is locked, and the caller's process is the last one.
    pub(crate) fn remove(&self) {
        let MemoryFolder::Recorded { registries, record, parent } = self else { return };
        if !self.is_made() {
            return;
        }
        // A folder that is not empty stays, and so does its record.
        if let Some(name) = read(registries, record)
            && system::remove_folder(&parent.join(name)).is_ok()
        {
            let _ = system::remove_file(&registries.join(record));
        }
    }
}

/// Reads the folder's name from the record, if it contains one.
fn read(registries: &Path, record: &str) -> Option<String> {
    let mut bytes = [0; MAX_NAME_BYTES];
    let length = folder::open(registries, record).ok()?.read_at(&mut bytes, 0).ok()?;
    let name = String::from_utf8(bytes.get(..length)?.to_vec()).ok()?;
    let sound = name.starts_with("pumice-") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    sound.then_some(name)
}

fn make(registries: &Path, record: &str, parent: &Path) -> Result<PathBuf, SharingError> {
    let mut tries = 0;
    loop {
        let name = format!("pumice-{}-{:016x}", process::effective_uid(), outside::random());
        let path = parent.join(&name);
        tries += 1;
        match Folder::open(&path) {
            Ok(_) => {}
            Err(_) if tries < TRIES => continue,
            Err(error) => return Err(error),
        }
        let failed = |source| SharingError::Os {
            step: "write the name of the folder in memory to",
            path: Some(registries.join(record)),
            source,
        };
        let file = folder::open(registries, record)?;
        file.set_len(0).and_then(|()| file.write_all_at(name.as_bytes(), 0)).map_err(failed)?;
        return Ok(path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::net::IpAddr;
    use std::os::unix::fs::PermissionsExt as _;

    use crate::UdpConfig;

    use super::*;
    use crate::shared_port::{SharedPort, SharedPortConfig};

    struct ScratchFolder(PathBuf);

    impl ScratchFolder {
        fn new(name: &str) -> ScratchFolder {
            let top = std::env::temp_dir().join(format!("pumice-memory-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&top);
            fs::create_dir_all(top.join("shm")).unwrap();
            fs::create_dir_all(top.join("other-shm")).unwrap();
            ScratchFolder(top)
        }

        fn folder(&self, shm: &str) -> MemoryFolder {
            let (registries, parent) = (self.0.join("registries"), self.0.join(shm));
            MemoryFolder::Recorded { registries, record: "x-memory".to_owned(), parent }
        }

        fn port(&self) -> SharedPort {
            let address = IpAddr::from([127, 200, (std::process::id() % 250) as u8, 77]);
            let udp = UdpConfig { port: 4790, ..UdpConfig::new(address) };
            SharedPort::open(&SharedPortConfig {
                folder: Some(self.0.join("registries")),
                ..SharedPortConfig::new(udp)
            })
            .unwrap()
        }

        fn names(&self, folder: &str) -> Vec<String> {
            let entries = fs::read_dir(self.0.join(folder)).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for ScratchFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn all_who_share_find_the_folder_that_the_first_one_made() {
        let scene = ScratchFolder::new("same");
        let (a, b) = (scene.port(), scene.port());
        let here = scene.folder("shm");
        let found = here.find(a.membership()).unwrap();
        assert_eq!(here.find(b.membership()), Ok(found.clone()));
        assert_eq!(fs::metadata(&found).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(scene.names("shm").len(), 1);
        // If the recorded name is not this user's or is malformed, a process that is alone makes a new one.
        drop(b);
        fs::set_permissions(&found, Permissions::from_mode(0o777)).unwrap();
        let second = here.find(a.membership()).unwrap();
        assert_ne!(second, found);
        for nonsense in ["", "pumice-/../x", "/etc", "pumice-\0"] {
            fs::write(scene.0.join("registries/x-memory"), nonsense).unwrap();
            let next = here.find(a.membership()).unwrap();
            assert!(next.starts_with(scene.0.join("shm")) && next != second, "{nonsense:?}: {next:?}");
        }
        fs::remove_dir_all(scene.0.join("shm")).unwrap();
        assert_eq!(here.find(a.membership()), Ok(scene.0.join("registries")), "private too");
    }

    #[test]
    fn processes_with_another_dev_shm_are_told_so() {
        let scene = ScratchFolder::new("other");
        let (a, b) = (scene.port(), scene.port());
        scene.folder("shm").find(a.membership()).unwrap();
        let refused = scene.folder("other-shm").find(b.membership()).unwrap_err();
        assert!(refused.contains("another /dev/shm") && refused.contains("XDG_RUNTIME_DIR"), "{refused}");
        assert_eq!(scene.names("other-shm"), [""; 0]);
        drop(a);
        assert!(scene.folder("other-shm").find(b.membership()).is_ok(), "alone");
    }

    #[test]
    fn the_last_one_removes_it_when_it_is_empty() {
        let scene = ScratchFolder::new("last");
        let here = scene.folder("shm");
        here.remove();
        let found = here.find(scene.port().membership()).unwrap();
        fs::write(found.join("x"), "").unwrap();
        here.remove();
        assert_eq!(here.find(scene.port().membership()), Ok(found.clone()));
        fs::remove_file(found.join("x")).unwrap();
        here.remove();
        assert!(scene.names("shm").is_empty() && !scene.names("registries").contains(&"x-memory".to_owned()));
    }
}

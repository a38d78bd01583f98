//! The folder in which the processes of a user meet, even when other users may have taken its name first.
//!
//! The folders in their order:
//!
//! 1. `$XDG_RUNTIME_DIR/pumice`, or `/run/user/UID/pumice` for sessions without that variable, such as
//!    cron's. No other user can create names there.
//! 2. `/tmp/pumice-UID`, then `/tmp/pumice-UID.1` and so on: the first that is this user's. Any user may have
//!    made a folder of such a name, so a folder that does not belong to this user alone is skipped. In a user
//!    namespace, UID is the number outside, and the one inside comes after it.
//! 3. `~/.cache/pumice-BOOT`, if all of these are taken or /tmp cannot be written. BOOT names this boot of
//!    this host: home folders may be shared with other hosts.
//!
//! All processes arrive at the same folder because a folder that exists is preferred to one that would have
//! to be made, and because names are made in one order.

use std::io;
use std::path::{Path, PathBuf};

use pumice_platform::outside;

use super::folder::Folder;
use crate::members::error::SharingError;
use crate::members::process;
use crate::system;

/// Number of names in /tmp that are tried.
const MAX_NAMES: u32 = 100;

/// The folder in which a user's processes meet.
#[derive(Debug)]
pub(crate) struct FoundFolder {
    pub(crate) folder: PathBuf,
    /// Notice for the user: a folder that comes earlier cannot be used.
    pub(crate) notice: Option<String>,
}

/// Finds the folder of this user's processes, and creates it if it does not exist.
///
/// # Errors
/// Fails if there is no folder that is fit for it.
pub(crate) fn find() -> Result<FoundFolder, SharingError> {
    FolderCandidates::of_this_process().find()
}

/// Returns the folder of this user's processes, and creates it if it does not exist. No other user can have
/// changed its contents.
///
/// # Errors
/// See [`SharingError`].
pub fn runtime_folder() -> Result<PathBuf, SharingError> {
    find().map(|found| found.folder)
}

/// Returns the first folder of this user's processes whose path `fits`, for uses that do not allow every
/// path.
///
/// # Errors
/// See [`SharingError`].
pub fn runtime_folder_that(fits: impl Fn(&Path) -> bool) -> Result<PathBuf, SharingError> {
    FolderCandidates::of_this_process().without(|path| !fits(path)).find().map(|found| found.folder)
}

/// Returns other folders of this user with a file of this name: processes that were given another folder may
/// be there.
pub(crate) fn others(than: &Path, name: &str) -> Vec<PathBuf> {
    let surroundings = FolderCandidates::of_this_process();
    surroundings.existing().filter(|folder| folder != than && system::exists(&folder.join(name))).collect()
}

/// The facts from which the folders follow.
#[derive(Debug)]
struct FolderCandidates {
    /// User of this process, as files show it.
    uid: u32,
    /// User of this process in the names of folders in /tmp: two users are never both 0 there only because
    /// each is root in a user namespace.
    outer_uid: u32,
    /// Value of $XDG_RUNTIME_DIR.
    given: Option<PathBuf>,
    /// Parent of the runtime folders of sessions: /run/user.
    sessions: PathBuf,
    /// Folder that all users share: /tmp.
    shared: PathBuf,
    home: Option<PathBuf>,
    /// Identifier of this boot of this host.
    boot: String,
}

impl FolderCandidates {
    fn of_this_process() -> FolderCandidates {
        let path = |name| {
            outside::environment::variable(name)
                .map(PathBuf::from)
                .filter(|path: &PathBuf| path.is_absolute())
        };
        let boot = system::read_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        FolderCandidates {
            uid: process::effective_uid(),
            outer_uid: process::outer_uid(),
            given: path("XDG_RUNTIME_DIR"),
            sessions: PathBuf::from("/run/user"),
            shared: PathBuf::from("/tmp"),
            home: path("HOME"),
            boot: boot.chars().filter(char::is_ascii_hexdigit).take(12).collect(),
        }
    }

    /// Returns the surroundings without those environment folders that are `unfit`.
    fn without(self, unfit: impl Fn(&Path) -> bool) -> FolderCandidates {
        let [given, home] = [self.given, self.home].map(|parent| parent.filter(|path| !unfit(path)));
        FolderCandidates { given, home, ..self }
    }

    fn find(&self) -> Result<FoundFolder, SharingError> {
        let mut refusals = Vec::new();
        let found = self
            .private()
            .find_map(|path| make(&path, &mut refusals).is_made().then_some(path))
            .or_else(|| self.find_shared(&mut refusals))
            .or_else(|| {
                let path = self.at_home()?;
                // An error of the parent is reported for the folder in it.
                let _ = path.parent().map(system::create_folder);
                make(&path, &mut refusals).is_made().then_some(path)
            });
        let mut refusals = refusals.into_iter();
        match (found, refusals.next()) {
            (Some(folder), None) => Ok(FoundFolder { folder, notice: None }),
            (Some(folder), Some(refusal)) => {
                let notice = format!("{refusal}; {} is used instead", folder.display());
                Ok(FoundFolder { folder, notice: Some(notice) })
            }
            (None, Some(first)) => Err(SharingError::NoFolder { first: Box::new(first) }),
            (None, None) => Err(SharingError::NoFolder {
                first: Box::new(SharingError::Os {
                    step: "make a folder in",
                    path: Some(self.shared.clone()),
                    source: io::Error::from_raw_os_error(libc::ENOENT),
                }),
            }),
        }
    }

    /// Returns the first name in the shared folder that belongs to this user, or else the first that can be
    /// created.
    fn find_shared(&self, refusals: &mut Vec<SharingError>) -> Option<PathBuf> {
        let existing = || self.shared_names().find(|path| is_ours(path));
        let before = refusals.len();
        let found = existing().or_else(|| {
            for path in self.shared_names() {
                match make(&path, refusals) {
                    // Meanwhile an earlier name may have become free and been taken by another process of
                    // this user.
                    FolderState::Yes => return existing().or(Some(path)),
                    FolderState::Taken => {}
                    FolderState::Impossible => break,
                }
            }
            None
        })?;
        if refusals.len() == before {
            // The folder existed: this finds out what is wrong with the names before it.
            for path in self.shared_names().take_while(|path| *path != found) {
                if let Err(refusal) = Folder::existing(&path)
                    && !is_missing(&refusal)
                {
                    refusals.push(refusal);
                }
            }
        }
        Some(found)
    }

    /// Returns the folders that exist and belong to this user.
    fn existing(&self) -> impl Iterator<Item = PathBuf> {
        self.private().chain(self.shared_names()).chain(self.at_home()).filter(|path| is_ours(path))
    }

    /// Returns the candidates in folders of this user's own.
    fn private(&self) -> impl Iterator<Item = PathBuf> {
        let session = |uid: u32| self.sessions.join(uid.to_string());
        let outer = Some(self.outer_uid).filter(|outer| *outer != self.uid);
        let parents = self.given.iter().cloned().chain([session(self.uid)]).chain(outer.map(session));
        // The folder must not be another user's, which `su` leaves in the environment.
        let ours = |path: &PathBuf| {
            system::about_path(path)
                .is_ok_and(|about| about.is_folder && about.uid == self.uid && about.mode & 0o300 == 0o300)
        };
        parents.filter(ours).map(|parent| parent.join("pumice")).collect::<Vec<_>>().into_iter()
    }

    fn shared_names(&self) -> impl Iterator<Item = PathBuf> {
        // Inside of another namespace, this namespace's number for the user is the outer one.
        let inner = Some(self.uid).filter(|uid| *uid != self.outer_uid);
        std::iter::once(self.outer_uid).chain(inner).flat_map(move |uid| {
            (0..MAX_NAMES).map(move |number| match number {
                0 => self.shared.join(format!("pumice-{uid}")),
                _ => self.shared.join(format!("pumice-{uid}.{number}")),
            })
        })
    }

    fn at_home(&self) -> Option<PathBuf> {
        let home = self.home.as_ref()?;
        let about = system::about_path(home).ok()?;
        let is_ours = about.is_folder && about.uid == self.uid && about.mode & 0o022 == 0;
        (is_ours && !self.boot.is_empty()).then(|| home.join(".cache").join(format!("pumice-{}", self.boot)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderState {
    Yes,
    /// An entry that does not belong to this user has the name.
    Taken,
    /// The folder could not be made, and another name in the same parent would fail as well.
    Impossible,
}

impl FolderState {
    fn is_made(self) -> bool {
        self == FolderState::Yes
    }
}

/// Makes a folder if it does not exist, and notes why it could not.
fn make(path: &Path, refusals: &mut Vec<SharingError>) -> FolderState {
    match Folder::open(path) {
        Ok(_) => FolderState::Yes,
        Err(refusal) => {
            let taken = system::is_name_taken(path);
            refusals.push(refusal);
            if taken { FolderState::Taken } else { FolderState::Impossible }
        }
    }
}

fn is_ours(path: &Path) -> bool {
    Folder::existing(path).is_ok()
}

fn is_missing(refusal: &SharingError) -> bool {
    matches!(refusal, SharingError::Os { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    /// Surroundings in a folder of their own, for tests.
    struct ScratchFolder(PathBuf);

    impl ScratchFolder {
        fn new(name: &str) -> ScratchFolder {
            let top =
                std::env::temp_dir().join(format!("pumice-runtime-folders-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&top);
            for folder in ["tmp", "run", "home", "given"] {
                fs::create_dir_all(top.join(folder)).unwrap();
                fs::set_permissions(top.join(folder), Permissions::from_mode(0o755)).unwrap();
            }
            ScratchFolder(top)
        }

        fn surroundings(&self) -> FolderCandidates {
            FolderCandidates {
                uid: process::effective_uid(),
                outer_uid: 77,
                given: None,
                sessions: self.0.join("run"),
                shared: self.0.join("tmp"),
                home: Some(self.0.join("home")),
                boot: "b007".to_owned(),
            }
        }

        /// Returns the folder relative to the scene, and the notice.
        fn find(&self, surroundings: &FolderCandidates) -> (String, Option<String>) {
            let found = surroundings.find().unwrap();
            let about = fs::symlink_metadata(&found.folder).unwrap();
            assert_eq!((about.mode() & 0o7777, about.uid()), (0o700, process::effective_uid()));
            let folder = found.folder.strip_prefix(&self.0).unwrap();
            (folder.to_str().unwrap().to_owned(), found.notice)
        }
    }

    impl Drop for ScratchFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_of_the_session_comes_before_tmp() {
        let scene = ScratchFolder::new("session");
        let mut here = scene.surroundings();
        assert_eq!(scene.find(&here), ("tmp/pumice-77".to_owned(), None));
        fs::create_dir(scene.0.join("run/77")).unwrap();
        assert_eq!(scene.find(&here), ("run/77/pumice".to_owned(), None), "by its number outside");
        fs::create_dir(scene.0.join(format!("run/{}", here.uid))).unwrap();
        assert_eq!(scene.find(&here), (format!("run/{}/pumice", here.uid), None));
        here.given = Some(scene.0.join("given"));
        assert_eq!(scene.find(&here), ("given/pumice".to_owned(), None));
        here.given = Some(scene.0.join("missing"));
        assert_eq!(scene.find(&here).0, format!("run/{}/pumice", here.uid));
        let others: Vec<PathBuf> = here.existing().collect();
        assert_eq!(others.len(), 3, "{others:?}");
        here.given = Some(scene.0.join("given"));
        let without = here.without(|path| path.ends_with("given") || path.ends_with("home"));
        assert_eq!(scene.find(&without).0, format!("run/{}/pumice", without.uid));
        assert_eq!(without.home, None);
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over_and_said() {
        let scene = ScratchFolder::new("taken");
        let here = scene.surroundings();
        let names: Vec<PathBuf> = here.shared_names().collect();
        // A folder that others may change, a link to a folder of this user, a file.
        fs::create_dir(&names[0]).unwrap();
        fs::set_permissions(&names[0], Permissions::from_mode(0o770)).unwrap();
        fs::create_dir(scene.0.join("ours")).unwrap();
        fs::set_permissions(scene.0.join("ours"), Permissions::from_mode(0o700)).unwrap();
        symlink(scene.0.join("ours"), &names[1]).unwrap();
        fs::write(&names[2], "").unwrap();
        for _ in 0..2 {
            let (folder, notice) = scene.find(&here);
            let notice = notice.unwrap();
            assert_eq!(folder, "tmp/pumice-77.3");
            assert!(notice.contains("pumice-77 cannot be used") && notice.contains("chmod"), "{notice}");
            assert!(notice.ends_with("pumice-77.3 is used instead"), "{notice}");
        }
        assert_eq!(fs::read_dir(scene.0.join("ours")).unwrap().count(), 0);
        // A process that starts when the names are free again joins the others where they are.
        fs::remove_dir(&names[0]).unwrap();
        fs::remove_file(&names[1]).unwrap();
        assert_eq!(scene.find(&here).0, "tmp/pumice-77.3");
    }

    #[test]
    fn with_all_names_taken_there_is_the_home_folder() {
        let scene = ScratchFolder::new("home");
        let mut here = scene.surroundings();
        here.shared_names().for_each(|name| fs::write(name, "").unwrap());
        let (folder, notice) = scene.find(&here);
        assert_eq!(folder, "home/.cache/pumice-b007");
        assert!(notice.unwrap().contains("pumice-77: Not a directory"));
        here.shared = scene.0.join("no-tmp");
        assert_eq!(scene.find(&here).0, "home/.cache/pumice-b007");
        // A folder that others may change is not accepted.
        fs::set_permissions(scene.0.join("home"), Permissions::from_mode(0o777)).unwrap();
        let refused = here.find().unwrap_err();
        assert!(matches!(refused, SharingError::NoFolder { .. }), "{refused}");
        assert_eq!(refused.errno(), libc::ENOENT);
        assert!(
            refused.to_string().contains("no-tmp/pumice-77")
                && refused.to_string().contains("XDG_RUNTIME_DIR")
        );
    }
}

//! Finds libpumice.so, and makes a folder in which it has the names that programs load.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Metadata};
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use pumice_device::sharing::runtime_folder_that;

use super::embedded_objects;
use super::invoked_programs::own_program;

const OBJECT: &str = "libpumice.so";
/// Folder of links beside the object.
const LINKS_FOLDER: &str = "pumice-links";

/// Names that programs were linked with, and those without a version that some load at run time.
const NAMES: [&str; 16] = [
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libmlx5.so.1",
    "libefa.so.1",
    "libmlx4.so.1",
    "libmana.so.1",
    "libibverbs.so",
    "librdmacm.so",
    "libmlx5.so",
    "libefa.so",
    "libmlx4.so",
    "libmana.so",
    "libmrc.so.1",
    "libmrc.so",
    "lib_mrc.so",
    "libnv_mrc.so",
];

/// The libpumice.so that was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundLibrary {
    pub(super) path: PathBuf,
    /// Cargo built it where it is. Otherwise it was installed, and `pumice run` adds nothing there, because
    /// the package would not remove it.
    is_built: bool,
}

/// Finds the object where it is installed or built with this program; otherwise unpacks it from the program.
///
/// # Errors
/// It is in none of these places; the sentence lists them.
pub(super) fn find() -> Result<FoundLibrary, String> {
    let own = own_program()?;
    let child_wait = own.parent().unwrap_or(Path::new("/"));
    match find_beside(child_wait) {
        Ok(found) => Ok(found),
        Err(nowhere) => {
            let path = embedded_objects::unpack()?.ok_or(nowhere)?.join(OBJECT);
            Ok(FoundLibrary { path, is_built: false })
        }
    }
}

fn find_beside(folder: &Path) -> Result<FoundLibrary, String> {
    let above = folder.parent().unwrap_or(folder);
    let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    // `cargo build` puts it beside the program, `cargo test` only into deps: the newer one counts, or the
    // last of two links to the same file.
    let built = [folder.join("deps").join(OBJECT), folder.join(OBJECT)];
    let newest = built.iter().filter(|path| path.is_file()).max_by_key(|path| changed(path));
    let installed = [above.join("lib/pumice").join(OBJECT), above.join("lib").join(OBJECT)];
    if let Some(path) = newest {
        return Ok(FoundLibrary { path: path.clone(), is_built: true });
    }
    if let Some(path) = installed.iter().find(|path| path.is_file()) {
        return Ok(FoundLibrary { path: path.clone(), is_built: false });
    }
    Err(format!(
        "{OBJECT} is neither in {} nor in {}: build it with `cargo build --release --workspace`, or install \
        it \
         in one of them",
        folder.display(),
        above.join("lib/pumice").display(),
    ))
}

/// Returns a folder in which the object has all its names: beside it where a package brings one or where
/// cargo built the object, otherwise in this user's runtime folder.
///
/// # Errors
/// Neither is possible.
pub(super) fn links(library: &FoundLibrary) -> Result<PathBuf, String> {
    let object = library.path.as_path();
    // The loader gives these characters a special meaning.
    let fits = |folder: &Path| !has_any(folder, b":;$");
    let child_wait = object.parent().map(|home| home.join(LINKS_FOLDER)).filter(|folder| fits(folder));
    let target = Path::new("..").join(OBJECT);
    // The folder is checked before anything is written there, because another user may have made it.
    if let Some(folder) = child_wait
        && (!library.is_built || make(&folder, 0o755).is_ok())
        && is_as_safe(&folder, object)
        && (is_full(&folder, &target) || (library.is_built && fill(&folder, &NAMES, &target).is_ok()))
    {
        return Ok(folder);
    }
    links_elsewhere(object, &NAMES, fits)
}

/// Makes the folder of links beside a build before a world begins. Otherwise the first `pumice run` of a
/// build would make it, and so differ from the runs after it. An error is ignored here, because `pumice run`
/// reports it.
pub(crate) fn make_links_of_build() {
    let Ok(own) = own_program() else { return };
    if let Ok(library) = find_beside(own.parent().unwrap_or(Path::new("/")))
        && library.is_built
    {
        let _ = links(&library);
    }
}

/// Returns the object's path or, if the loader would split that path into two names, that of a link to it in
/// this user's runtime folder.
///
/// # Errors
/// There is no such folder.
pub(super) fn preloadable(object: &Path) -> Result<PathBuf, String> {
    let fits = |path: &Path| !has_any(path, b" :$");
    match object.file_name().and_then(OsStr::to_str) {
        Some(name) if !fits(object) => Ok(links_elsewhere(object, &[name], fits)?.join(name)),
        _ => Ok(object.to_owned()),
    }
}

fn has_any(path: &Path, bytes: &[u8]) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| bytes.contains(byte))
}

/// Makes links with these names to the object in a folder of this user whose path satisfies `fits`.
fn links_elsewhere(object: &Path, names: &[&str], fits: impl Fn(&Path) -> bool) -> Result<PathBuf, String> {
    let runtime = runtime_folder_that(fits).map_err(|error| error.to_string())?;
    let mut hasher = std::hash::DefaultHasher::new();
    object.hash(&mut hasher);
    let folder = runtime.join(format!("links-{:016x}", hasher.finish()));
    make(&folder, 0o700).and_then(|()| fill(&folder, names, object)).map_err(|error| {
        format!("links to {} cannot be made in {}: {error}", object.display(), folder.display())
    })?;
    Ok(folder)
}

/// Creates the folder if it does not exist.
fn make(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if fs::symlink_metadata(folder)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Reports whether the folder has all links.
fn is_full(folder: &Path, target: &Path) -> bool {
    NAMES.iter().all(|name| fs::read_link(folder.join(name)).is_ok_and(|found| found == target))
}

/// Creates the missing links. Other processes may be doing the same.
fn fill(folder: &Path, names: &[&str], target: &Path) -> io::Result<()> {
    for name in names {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|found| found == target) {
            continue;
        }
        // The link is renamed into place, so that a program that starts meanwhile finds the old one or the
        // new one.
        let fresh = folder.join(format!(".{name}-{}", std::process::id()));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(target, &fresh)?,
        }
        fs::rename(&fresh, &link)?;
    }
    Ok(())
}

/// Reports whether every user who can change the folder can also change the object, so that using it trusts
/// no further user.
fn is_as_safe(folder: &Path, object: &Path) -> bool {
    let about = |path: &Path| fs::symlink_metadata(path).ok();
    let Some((links, home)) = about(folder).zip(object.parent().and_then(about)) else { return false };
    let own = rustix::process::geteuid().as_raw();
    let trusted = |owner: u32| [0, own, home.uid()].contains(&owner);
    let others = |about: &Metadata| about.mode() & 0o022;
    links.is_dir() && trusted(links.uid()) && others(&links) & !others(&home) == 0
}

/// Returns LD_LIBRARY_PATH with the folder in front.
pub(super) fn search_path(folder: &Path, before: Option<OsString>) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    let before = before.unwrap_or_default();
    for part in before.as_bytes().split(|byte| matches!(byte, b':' | b';')) {
        // An empty part would mean the current folder, which a user who writes "a::b" does not intend.
        if !part.is_empty() && part != folder.as_os_str().as_bytes() {
            path.push(":");
            path.push(OsStr::from_bytes(part));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pumice-library-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_folder_comes_first_and_once() {
        let folder = Path::new("/x/links");
        for (before, after) in [
            ("", "/x/links"),
            ("/a:/b", "/x/links:/a:/b"),
            ("/x/links:/a", "/x/links:/a"),
            (":/a:", "/x/links:/a"),
        ] {
            assert_eq!(search_path(folder, Some(before.into())), after);
        }
        assert_eq!(search_path(folder, None), "/x/links");
    }

    #[test]
    fn the_object_is_found_built_or_installed() {
        let top = scratch("find");
        let bin = top.join("bin");
        fs::create_dir_all(bin.join("deps")).unwrap();
        assert!(find_beside(&bin).unwrap_err().contains("cargo build"));
        for (folder, is_built) in [("lib", false), ("lib/pumice", false), ("bin/deps", true)] {
            fs::create_dir_all(top.join(folder)).unwrap();
            let path = top.join(folder).join(OBJECT);
            fs::write(&path, "").unwrap();
            assert_eq!(find_beside(&bin), Ok(FoundLibrary { path, is_built }));
        }
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn the_loader_gets_paths_that_it_reads_as_one() {
        let plain = scratch("plain").join("p.so");
        assert_eq!(preloadable(&plain), Ok(plain));
        for name in ["a b", "a:b", "a$b"] {
            let top = scratch("odd").join(name);
            fs::create_dir_all(&top).unwrap();
            let object = top.join(OBJECT);
            fs::write(&object, "object").unwrap();
            let [preload, links] = [
                preloadable(&object).unwrap(),
                links(&FoundLibrary { path: object.clone(), is_built: true }).unwrap().join(NAMES[0]),
            ];
            assert!(!has_any(&preload, b" :$") && !has_any(&links, b":;$"), "{preload:?} {links:?}");
            assert_eq!(fs::read(&preload).unwrap(), b"object");
            assert_eq!(fs::read(&links).unwrap(), b"object");
            // A second call returns the same path.
            assert_eq!(preloadable(&object), Ok(preload.clone()));
            fs::remove_dir_all(preload.parent().unwrap()).unwrap();
            fs::remove_dir_all(&top).unwrap();
        }
    }

    #[test]
    fn links_are_made_once_and_mended() {
        let top = scratch("links");
        let object = top.join(OBJECT);
        fs::write(&object, "object").unwrap();
        let built = FoundLibrary { path: object, is_built: true };
        let folder = links(&built).unwrap();
        assert_eq!(folder, top.join(LINKS_FOLDER));
        for name in NAMES {
            assert_eq!(fs::read(folder.join(name)).unwrap(), b"object", "{name}");
        }
        fs::remove_file(folder.join(NAMES[0])).unwrap();
        symlink("/nowhere", folder.join(NAMES[0])).unwrap();
        assert_eq!(links(&built).unwrap(), folder);
        assert_eq!(fs::read_link(folder.join(NAMES[0])).unwrap(), Path::new("..").join(OBJECT));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), NAMES.len());
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn where_a_package_is_installed_nothing_is_written() {
        let top = scratch("installed");
        let path = top.join(OBJECT);
        fs::write(&path, "").unwrap();
        let installed = FoundLibrary { path, is_built: false };
        let elsewhere = links(&installed).unwrap();
        assert_ne!(elsewhere, top.join(LINKS_FOLDER));
        assert_eq!(fs::read_dir(&top).unwrap().count(), 1, "the object alone");
        // Links that a package brings are used.
        fs::create_dir(top.join(LINKS_FOLDER)).unwrap();
        assert_eq!(links(&installed).unwrap(), elsewhere);
        for name in NAMES {
            symlink(Path::new("..").join(OBJECT), top.join(LINKS_FOLDER).join(name)).unwrap();
        }
        assert_eq!(links(&installed).unwrap(), top.join(LINKS_FOLDER));
        fs::remove_dir_all(&elsewhere).unwrap();
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_change_is_not_used() {
        let top = scratch("unsafe");
        let object = top.join(OBJECT);
        fs::write(&object, "").unwrap();
        fs::create_dir(top.join(LINKS_FOLDER)).unwrap();
        assert!(is_as_safe(&top.join(LINKS_FOLDER), &object));
        fs::set_permissions(top.join(LINKS_FOLDER), Permissions::from_mode(0o777)).unwrap();
        assert!(!is_as_safe(&top.join(LINKS_FOLDER), &object));
        let elsewhere = links(&FoundLibrary { path: object, is_built: true }).unwrap();
        assert_ne!(elsewhere, top.join(LINKS_FOLDER));
        assert_eq!(fs::read_dir(top.join(LINKS_FOLDER)).unwrap().count(), 0, "nothing is written there");
        fs::remove_dir_all(&elsewhere).unwrap();
        fs::remove_dir_all(&top).unwrap();
    }
}

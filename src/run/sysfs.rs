//! `--sysfs`: what a program that looks into /sys/class/infiniband and /dev/infiniband needs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_device::guid::node_guid;
use pumice_device::interface::interfaces;
use pumice_device::settings::Settings;
use pumice_device::share::runtime_folder;
use pumice_device::sysfs::{MAX_FOLDER_BYTES, Sysfs, SysfsDevice};

/// The preload, beside libpumice.so.
const PRELOAD: &str = "libpumice_sysfs.so";
/// Names the folder with the tree to the preload.
const FOLDER: &str = "PUMICE_SYSFS";
/// The loader's list of objects to load first.
pub(super) const LD_PRELOAD: &str = "LD_PRELOAD";

/// Prepares `command` to see the device there. `object` is libpumice.so.
///
/// # Errors
/// A sentence that says why not.
pub(super) fn prepare(settings: &Settings, object: &Path, command: &mut Command) -> Result<(), String> {
    let preload = find_preload("--sysfs", PRELOAD, object)?;
    let tree = tree(settings)?;
    let runtime = runtime_folder().map_err(|error| error.to_string())?;
    let folder = runtime.join(tree.folder_name());
    write(&tree, &folder)?;
    command.env(FOLDER, &folder);
    command.env(LD_PRELOAD, preloads(&preload, std::env::var_os(LD_PRELOAD)));
    Ok(())
}

/// The preload that an option needs, where it is built or installed with libpumice.so.
///
/// # Errors
/// It is not there, or where the loader cannot take it from.
pub(super) fn find_preload(option: &str, name: &str, object: &Path) -> Result<PathBuf, String> {
    let preload = find_beside(object, name).ok_or_else(|| {
        format!(
            "{option} needs {name} beside {}: build it with `cargo build --release --workspace`, or install \
             it there",
            object.display()
        )
    })?;
    // The loader would read two names into these.
    if preload.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$')) {
        return Err(format!(
            "the loader cannot preload {}: move it to a folder without ' ', ':' and '$' in its name",
            preload.display()
        ));
    }
    Ok(preload)
}

fn find_beside(object: &Path, name: &str) -> Option<PathBuf> {
    let folder = object.parent()?;
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|about| about.modified()).ok();
    // `cargo build` puts it beside the program, `cargo test` only into deps: the newer one counts.
    let mut candidates = vec![folder.join("deps").join(name), folder.join(name)];
    if folder.ends_with("deps") {
        candidates.extend(folder.parent().map(|above| above.join(name)));
    }
    candidates.into_iter().filter(|path| path.is_file()).max_by_key(changed)
}

/// Writes a tree where the preload can show it.
fn write(tree: &Sysfs, folder: &Path) -> Result<(), String> {
    if folder.as_os_str().len() > MAX_FOLDER_BYTES {
        return Err(format!(
            "the name of {} is longer than {MAX_FOLDER_BYTES} bytes: use another folder",
            folder.display()
        ));
    }
    tree.write(folder).map_err(|error| error.to_string())
}

/// The tree of the device that the settings describe.
fn tree(settings: &Settings) -> Result<Sysfs, String> {
    let found = interfaces().map_err(|error| format!("the network interfaces cannot be listed: {error}"))?;
    let gids = settings.gid_entries(&found).map_err(|error| error.to_string())?;
    let profile = settings.load_profile().map_err(|error| error.to_string())?;
    let processors = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    Ok(Sysfs::of(&SysfsDevice {
        name: &settings.device,
        guid: node_guid(&found, &gids),
        profile: &profile,
        gids: &gids,
        processors: processors.as_deref().map(str::trim),
    }))
}

/// LD_PRELOAD with the preload in front, once.
pub(super) fn preloads(preload: &Path, before: Option<OsString>) -> OsString {
    let mut list = preload.as_os_str().to_owned();
    let before = before.unwrap_or_default();
    for other in before.as_bytes().split(|byte| matches!(byte, b':' | b' ')) {
        if !other.is_empty() && other != preload.as_os_str().as_bytes() {
            list.push(":");
            list.push(OsStr::from_bytes(other));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preload_comes_first_and_once() {
        for (before, after) in
            [("", "/x/p.so"), ("/a.so b.so", "/x/p.so:/a.so:b.so"), ("/a.so:/x/p.so", "/x/p.so:/a.so")]
        {
            assert_eq!(preloads(Path::new("/x/p.so"), Some(before.into())), after);
        }
        assert_eq!(preloads(Path::new("/x/p.so"), None), "/x/p.so");
    }
}

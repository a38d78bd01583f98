//! The objects that the loader loads before the program, and the contents of /sys and /dev that it sees.
//!
//! Always: the small preload that shows the program a private /sys/class/infiniband and leads packages with a
//! libibverbs of their own to the device. With `--rsocket`: the one that makes rsockets of TCP sockets. For a
//! checked program, and in a world: the one that reports what it frees, and its locks.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_device::outside::interface::interfaces;
use pumice_device::outside::world::WORLD_VARIABLE;
use pumice_device::settings::{LogLevel, Settings};
use pumice_device::sharing::{counted_file_name, runtime_folder};
use pumice_device::sysfs::{MAX_FOLDER_BYTES, Sysfs, SysfsDevice, SysfsPort};
use pumice_transport::path::ROCE_PORT;

use super::options::RunOptions;
use super::{library, unused_trees};
use crate::outcome::complain;

/// Makes the tree, and returns its path.
///
/// # Errors
/// A sentence that says why it cannot be made.
pub(super) fn make(settings: &Settings) -> Result<PathBuf, String> {
    let runtime = runtime_folder().map_err(|error| error.to_string())?;
    let tree = tree(settings, &runtime)?;
    let folder = runtime.join(unused_trees::name_of(&tree.folder_name()));
    unused_trees::remove(&runtime);
    unused_trees::lock_trees(&runtime)?;
    write(&tree, &folder)?;
    unused_trees::touch(&folder);
    Ok(folder)
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

/// Returns the processors of a NUMA node of this host as Linux lists them, or all of them if the host has no
/// such node.
fn processors_near(numa_node: i32) -> Option<String> {
    let of_node = fs::read_to_string(format!("/sys/devices/system/node/node{numa_node}/cpulist"));
    let all = || fs::read_to_string("/sys/devices/system/cpu/online");
    // A node may have memory only.
    let found = of_node.ok().filter(|list| !list.trim().is_empty());
    Some(found.or_else(|| all().ok())?.trim().to_owned())
}

/// Returns the tree of the devices that the settings describe. `runtime` is the folder of the registry.
fn tree(settings: &Settings, runtime: &Path) -> Result<Sysfs, String> {
    let found = interfaces().map_err(|error| format!("the network interfaces cannot be listed: {error}"))?;
    let profile = settings.load_profile().map_err(|error| error.to_string())?;
    let described = settings.device_descriptions(&profile, &found).map_err(|error| error.to_string())?;
    let is_only = described.len() == 1;
    let mut parts = Vec::new();
    for device in &described {
        let gids = device.gid_entries(&found).map_err(|error| error.to_string())?;
        let file = |own| runtime.join(counted_file_name(ROCE_PORT, own));
        let counted = file(device.counter_address(is_only));
        let second = device.second_port.as_ref().map(|port| (&port.profile, file(Some(port.address))));
        parts.push((device, gids, counted, second, processors_near(device.numa_node)));
    }
    let devices: Vec<SysfsDevice<'_>> = parts
        .iter()
        .enumerate()
        .map(|(index, (device, gids, counted, second, processors))| SysfsDevice {
            index,
            name: &device.name,
            guid: device.guid(is_only, &found, gids),
            profile: &device.profile,
            gids,
            counted: Some(counted),
            second_port: second
                .as_ref()
                .map(|(profile, counted)| SysfsPort { profile, counted: Some(counted) }),
            netdev: device.netdev.as_ref().map(|(name, index)| (name.as_str(), *index)),
            numa_node: device.numa_node,
            pci_address: device.pci_address.as_deref(),
            processors: processors.as_deref(),
        })
        .collect();
    Ok(Sysfs::of(&devices))
}

/// Name of the preload that is always loaded, beside libpumice.so.
const SYSFS: &str = "libpumice_sysfs.so";
const RSOCKET: &str = "libpumice_rsocket.so";
const CHECK: &str = "libpumice_check.so";
/// Variable that names the folder with the private tree for the preload.
const FOLDER: &str = "PUMICE_SYSFS";
/// Variable that names libpumice.so for the preload.
const LIBRARY: &str = "PUMICE_LIBRARY";
/// Variable with the loader's list of objects to load first.
const LD_PRELOAD: &str = "LD_PRELOAD";
/// Variable with AddressSanitizer's options.
const ASAN_OPTIONS: &str = "ASAN_OPTIONS";
/// Option that lets other objects be loaded before AddressSanitizer's library.
const ASAN_ORDER: &str = "verify_asan_link_order";

/// Prepares `command`, so that the loader loads what the options ask for. `object` is libpumice.so.
///
/// # Errors
/// A sentence that says why what was requested is impossible. Without `--sysfs`, the failure of the small
/// preload is only printed.
pub(super) fn prepare(
    options: &RunOptions,
    settings: &Settings,
    object: &Path,
    command: &mut Command,
) -> Result<(), String> {
    let mut list = Vec::new();
    if options.rsocket {
        list.push(find("--rsocket", RSOCKET, object)?);
    }
    match show_device(settings, object, command) {
        Ok(preload) => list.push(preload),
        Err(sentence) if options.sysfs => return Err(sentence),
        Err(sentence) if settings.log >= LogLevel::Warn => {
            complain(&format!("{sentence}; so the program sees the system's /sys/class/infiniband"));
        }
        Err(_) => {}
    }
    if settings.check.is_some() || std::env::var_os(WORLD_VARIABLE).is_some() {
        let option = if settings.check.is_some() { "--check" } else { "a world" };
        match find(option, CHECK, object) {
            Ok(preload) => list.push(preload),
            Err(sentence) if settings.check.is_some() => {
                complain(&format!("{sentence}; so memory that is freed and stays mapped is not found"));
            }
            Err(sentence) => complain(&format!("{sentence}; so no thread goes first at a lock")),
        }
    }
    if !list.is_empty() {
        command.env(LD_PRELOAD, preloads(&list, std::env::var_os(LD_PRELOAD)));
        command.env(ASAN_OPTIONS, asan_options(std::env::var_os(ASAN_OPTIONS)));
    }
    Ok(())
}

/// Prepares the small preload, and the tree that it shows.
fn show_device(settings: &Settings, object: &Path, command: &mut Command) -> Result<PathBuf, String> {
    let preload = find("--sysfs", SYSFS, object)?;
    let folder = make(settings)?;
    command.env(FOLDER, folder).env(LIBRARY, object);
    Ok(preload)
}

/// Returns the preload that an option needs, where it is built or installed with libpumice.so.
///
/// # Errors
/// It does not exist, or no name that the loader can parse leads to it.
fn find(option: &str, name: &str, object: &Path) -> Result<PathBuf, String> {
    let preload = find_beside(object, name).ok_or_else(|| {
        format!(
            "{option} needs {name} beside {}: build it with `cargo build --release --workspace`, or install \
             it there",
            object.display()
        )
    })?;
    library::preloadable(&preload)
}

/// Returns a sentence for each preload that is missing beside libpumice.so.
pub(super) fn missing(object: &Path) -> Vec<String> {
    let parts = [
        (SYSFS, "programs see the system's /sys/class/infiniband"),
        (RSOCKET, "pumice run --rsocket fails"),
        (CHECK, "pumice check does not find memory that is freed and stays mapped"),
    ];
    let absent = parts.into_iter().filter(|(name, _)| find_beside(object, name).is_none());
    absent.map(|(name, so)| format!("{name} is not beside {}: {so}", object.display())).collect()
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

/// Returns LD_PRELOAD with this project's objects in front, once, and the others in their order.
fn preloads(ours: &[PathBuf], before: Option<OsString>) -> OsString {
    let before = before.unwrap_or_default();
    let others = before.as_bytes().split(|byte| matches!(byte, b':' | b' ')).map(OsStr::from_bytes);
    let others =
        others.filter(|other| !other.is_empty() && !ours.iter().any(|own| own.as_os_str() == *other));
    ours.iter().map(|own| own.as_os_str()).chain(others).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// Returns AddressSanitizer's options with a check switched off: its library refuses to run if another one
/// was loaded before it. The preloads of this project allocate no memory of their own that it could miss.
fn asan_options(before: Option<OsString>) -> OsString {
    let mut options = before.unwrap_or_default();
    let named = ASAN_ORDER.as_bytes();
    if !options.as_bytes().windows(named.len()).any(|part| part == named) {
        if !options.is_empty() {
            options.push(":");
        }
        options.push(ASAN_ORDER);
        options.push("=0");
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preloads_come_first_and_once() {
        let one = [PathBuf::from("/x/p.so")];
        for (before, after) in
            [("", "/x/p.so"), ("/a.so b.so", "/x/p.so:/a.so:b.so"), ("/a.so:/x/p.so", "/x/p.so:/a.so")]
        {
            assert_eq!(preloads(&one, Some(before.into())), after);
        }
        assert_eq!(preloads(&one, None), "/x/p.so");
        let two = [PathBuf::from("/x/r.so"), PathBuf::from("/x/p.so")];
        assert_eq!(preloads(&two, Some("/x/p.so:/a.so".into())), "/x/r.so:/x/p.so:/a.so");
    }

    #[test]
    fn the_options_of_a_sanitizer_stay() {
        assert_eq!(asan_options(None), "verify_asan_link_order=0");
        assert_eq!(asan_options(Some("halt_on_error=0".into())), "halt_on_error=0:verify_asan_link_order=0");
        assert_eq!(asan_options(Some("verify_asan_link_order=1".into())), "verify_asan_link_order=1");
    }
}

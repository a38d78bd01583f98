//! What a program that looks into /sys/class/infiniband and /dev/infiniband sees there.

use std::fs;
use std::path::{Path, PathBuf};

use pumice_device::addresses::guid::node_guid;
use pumice_device::settings::Settings;
use pumice_device::share::{counted_file_name, runtime_folder};
use pumice_device::sysfs::{MAX_FOLDER_BYTES, Sysfs, SysfsDevice};
use pumice_device::system::interface::interfaces;
use pumice_transport::path::ROCE_PORT;

/// Makes the tree. Where it is.
///
/// # Errors
/// A sentence that says why not.
pub(super) fn make(settings: &Settings) -> Result<PathBuf, String> {
    let runtime = runtime_folder().map_err(|error| error.to_string())?;
    let tree = tree(settings, &runtime.join(counted_file_name(ROCE_PORT)))?;
    let folder = runtime.join(tree.folder_name());
    write(&tree, &folder)?;
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

/// The tree of the device that the settings describe.
fn tree(settings: &Settings, counted: &Path) -> Result<Sysfs, String> {
    let found = interfaces().map_err(|error| format!("the network interfaces cannot be listed: {error}"))?;
    let gids = settings.gid_entries(&found).map_err(|error| error.to_string())?;
    let profile = settings.load_profile().map_err(|error| error.to_string())?;
    let processors = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    Ok(Sysfs::of(&SysfsDevice {
        name: &settings.device,
        guid: node_guid(&found, &gids),
        profile: &profile,
        gids: &gids,
        counted: Some(counted),
        processors: processors.as_deref().map(str::trim),
    }))
}

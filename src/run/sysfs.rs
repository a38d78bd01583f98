//! The contents of /sys/class/infiniband and /dev/infiniband that a program sees.

use std::fs;
use std::path::{Path, PathBuf};

use pumice_device::outside::interface::interfaces;
use pumice_device::settings::Settings;
use pumice_device::sharing::{counted_file_name, runtime_folder};
use pumice_device::sysfs::{MAX_FOLDER_BYTES, Sysfs, SysfsDevice, SysfsPort};
use pumice_transport::path::ROCE_PORT;

use super::unused_trees;

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

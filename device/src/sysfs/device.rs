//! What the tree tells of a device.

use std::path::Path;

use crate::addresses::gid_table::GidEntry;
use crate::profile::Profile;

/// A device as the tree shows it. The same values as the verbs that query it give.
#[derive(Debug, Clone)]
pub struct SysfsDevice<'a> {
    /// Its place among the devices.
    pub index: usize,
    /// Name, such as "pumice0".
    pub name: &'a str,
    /// GUID of the node and of the system image, as it travels.
    pub guid: [u8; 8],
    /// What else the device says about itself.
    pub profile: &'a Profile,
    /// The GID table.
    pub gids: &'a [GidEntry],
    /// Where the processes count, for files whose contents change (`share::counted_file_name`).
    pub counted: Option<&'a Path>,
    /// Number of the NUMA node that it is near; -1: none in particular.
    pub numa_node: i32,
    /// Where it is on PCI, such as "0000:18:00.0".
    pub pci_address: Option<&'a str>,
    /// The processors of the host as Linux lists them ("0-3,8"), if that is known.
    pub processors: Option<&'a str>,
}

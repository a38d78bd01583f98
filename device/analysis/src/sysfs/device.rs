//! The facts about a device that the tree shows.

use std::path::Path;

use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::profile::{PortProfile, Profile};

/// A device as the tree shows it. The values are the same that the verbs which query it return.
#[derive(Debug, Clone)]
pub struct SysfsDevice<'a> {
    /// Index among the devices.
    pub index: usize,
    /// Name, such as "pumice0".
    pub name: &'a str,
    /// GUID of the node and of the system image, in network byte order.
    pub guid: [u8; 8],
    /// Other facts that the device reports about itself.
    pub profile: &'a Profile,
    /// GID tables of its ports.
    pub gids: &'a [GidEntry],
    /// File in which the processes count, for files whose contents change (`share::counted_file_name`).
    pub counted: Option<&'a Path>,
    /// Second port, if it has one: the profile and `counted` are of the first.
    pub second_port: Option<SysfsPort<'a>>,
    /// Network interface that is shown beside it, and its index, if that is not the one of its addresses.
    pub netdev: Option<(&'a str, u32)>,
    /// Number of the NUMA node that it is near; -1 for none in particular.
    pub numa_node: i32,
    /// Address on PCI, such as "0000:18:00.0".
    pub pci_address: Option<&'a str>,
    /// Processors that it is near, as Linux lists them ("0-3,8"), if that is known.
    pub processors: Option<&'a str>,
}

/// The second port of a device.
#[derive(Debug, Clone)]
pub struct SysfsPort<'a> {
    /// Facts that the port reports about itself.
    pub profile: &'a PortProfile,
    /// File in which the processes count, as [`SysfsDevice::counted`].
    pub counted: Option<&'a Path>,
}

impl SysfsDevice<'_> {
    /// Returns the number of its ports.
    pub(super) fn port_count(&self) -> u8 {
        if self.second_port.is_some() { 2 } else { 1 }
    }

    /// Returns the GID table of a port.
    pub(super) fn gids_of(&self, port_num: u8) -> impl Iterator<Item = &GidEntry> {
        self.gids.iter().filter(move |entry| entry.port_num == port_num)
    }

    /// Returns the network interface of one of its addresses, and its index.
    pub(super) fn interface_of<'s>(&'s self, entry: &'s GidEntry) -> (&'s str, u32) {
        let own = (entry.interface.as_str(), entry.interface_index);
        // The interface that is given for the device is that of its first port.
        if entry.port_num == 1 { self.netdev.unwrap_or(own) } else { own }
    }
}

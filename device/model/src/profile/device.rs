//! The part of a profile about one of several devices.

use std::net::IpAddr;

use pumice_transport::types::Mtu;
use serde::{Deserialize, Deserializer, de};

use super::port::{mtu, width};
use super::{CongestionProfile, Speed, Width};
use crate::settings::LinkSettings;

/// A device of a profile (`[[device]]`): its address, and the values that differ. A value that is left out is
/// as in the rest of the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceProfile {
    /// The name. Default: the name of the first device with the next number.
    pub name: Option<String>,
    /// The address. Default: that of its interface, or one that is chosen.
    pub address: Option<IpAddr>,
    /// The network interface whose first address the device has.
    pub interface: Option<String>,
    /// The network interface that sysfs shows for the device. Default: the one that has its address.
    pub netdev: Option<String>,
    /// The node GUID, in groups of two bytes as sysfs writes it.
    #[serde(deserialize_with = "guid")]
    pub node_guid: Option<u64>,
    /// The number of the nearest NUMA node.
    pub numa_node: Option<i32>,
    /// The PCI address, such as "0000:18:00.0".
    pub pci_address: Option<String>,
    /// The vendor ID, as in the profile.
    pub vendor_id: Option<u32>,
    /// The part ID, as in the profile.
    pub part_id: Option<u32>,
    /// The board ID, as in the profile.
    pub board_id: Option<String>,
    /// The rate of a lane, as `port.speed`.
    pub speed: Option<Speed>,
    /// The number of lanes, as `port.width`.
    #[serde(deserialize_with = "some_width")]
    pub width: Option<Width>,
    /// The largest path MTU, as `port.max_mtu`.
    #[serde(deserialize_with = "some_mtu")]
    pub max_mtu: Option<Mtu>,
    /// The partition keys, as `port.pkeys`.
    pub pkeys: Option<Vec<u16>>,
    /// The link settings that differ from `link`.
    pub link: LinkSettings,
    /// The congestion control, which replaces all of `congestion`.
    pub congestion: Option<CongestionProfile>,
    /// The ports, where there are two, or where the one is written like this; otherwise the device has one.
    #[serde(rename = "port")]
    pub ports: Vec<DevicePortProfile>,
}

/// A port of a device of a profile (`[[device.port]]`): its address, and the values that differ. A value that
/// is left out is as in the device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevicePortProfile {
    /// The address. Default: that of its interface, or one that is chosen.
    pub address: Option<IpAddr>,
    /// The network interface whose first address the port has.
    pub interface: Option<String>,
    /// The rate of a lane, as `port.speed`.
    pub speed: Option<Speed>,
    /// The number of lanes, as `port.width`.
    #[serde(deserialize_with = "some_width")]
    pub width: Option<Width>,
    /// The largest path MTU, as `port.max_mtu`.
    #[serde(deserialize_with = "some_mtu")]
    pub max_mtu: Option<Mtu>,
    /// The partition keys, as `port.pkeys`.
    pub pkeys: Option<Vec<u16>>,
}

impl DeviceProfile {
    /// Returns the number of ports.
    pub(super) fn port_count(&self) -> usize {
        self.ports.len().max(1)
    }

    /// Returns the address or the interface of a port, counted from 0.
    pub(super) fn address_and_interface(&self, index: usize) -> (Option<IpAddr>, Option<&str>) {
        match self.ports.get(index) {
            Some(port) => (port.address, port.interface.as_deref()),
            None => (self.address, self.interface.as_deref()),
        }
    }
}

fn some_width<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Width>, D::Error> {
    width(input).map(Some)
}

fn some_mtu<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Mtu>, D::Error> {
    mtu(input).map(Some)
}

fn guid<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(input)?;
    let groups: Vec<&str> = text.split(':').collect();
    let well_formed = groups.len() == 4 && groups.iter().all(|group| group.len() == 4);
    let guid = u64::from_str_radix(&groups.concat(), 16).ok().filter(|guid| well_formed && *guid != 0);
    guid.map(Some).ok_or_else(|| {
        de::Error::custom(format!("{text:?} is no GUID: write it in four groups, as 0c42:a103:0065:1a90"))
    })
}

//! What a profile says about one of several devices.

use std::net::IpAddr;

use pumice_transport::types::Mtu;
use serde::{Deserialize, Deserializer, de};

use super::port::{mtu, width};
use super::{CongestionProfile, Speed, Width};
use crate::settings::LinkSettings;

/// A device of a profile (`[[device]]`): where it is, and what it has of its own. What is left out is as in
/// the rest of the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceProfile {
    /// Its name. Default: the name of the first device with the next number.
    pub name: Option<String>,
    /// Its address. Default: that of its interface, or one that is chosen.
    pub address: Option<IpAddr>,
    /// The network interface whose first address it has.
    pub interface: Option<String>,
    /// The network interface that sysfs names beside it. Default: the one that has its address.
    pub netdev: Option<String>,
    /// Node GUID, in groups of two bytes as sysfs writes it.
    #[serde(deserialize_with = "guid")]
    pub node_guid: Option<u64>,
    /// Number of the NUMA node that it is near.
    pub numa_node: Option<i32>,
    /// Where it is on PCI, such as "0000:18:00.0".
    pub pci_address: Option<String>,
    /// As in the profile.
    pub vendor_id: Option<u32>,
    /// As in the profile.
    pub part_id: Option<u32>,
    /// As in the profile.
    pub board_id: Option<String>,
    /// As `port.speed`.
    pub speed: Option<Speed>,
    /// As `port.width`.
    #[serde(deserialize_with = "some_width")]
    pub width: Option<Width>,
    /// As `port.max_mtu`.
    #[serde(deserialize_with = "some_mtu")]
    pub max_mtu: Option<Mtu>,
    /// As `port.pkeys`.
    pub pkeys: Option<Vec<u16>>,
    /// As `link`, where it says something.
    pub link: LinkSettings,
    /// In place of `congestion`, all of it.
    pub congestion: Option<CongestionProfile>,
    /// Its ports, where it has two, or where one is written so; without them it has one.
    #[serde(rename = "port")]
    pub ports: Vec<DevicePortProfile>,
}

/// A port of a device of a profile (`[[device.port]]`): where it is, and what it has of its own. What is left
/// out is as in the device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevicePortProfile {
    /// Its address. Default: that of its interface, or one that is chosen.
    pub address: Option<IpAddr>,
    /// The network interface whose first address it has.
    pub interface: Option<String>,
    /// As `port.speed`.
    pub speed: Option<Speed>,
    /// As `port.width`.
    #[serde(deserialize_with = "some_width")]
    pub width: Option<Width>,
    /// As `port.max_mtu`.
    #[serde(deserialize_with = "some_mtu")]
    pub max_mtu: Option<Mtu>,
    /// As `port.pkeys`.
    pub pkeys: Option<Vec<u16>>,
}

impl DeviceProfile {
    /// How many ports it has.
    pub(super) fn port_count(&self) -> usize {
        self.ports.len().max(1)
    }

    /// Where a port is, counted from 0: its address, or its interface.
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

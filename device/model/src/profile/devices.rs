//! The devices of a process: their number, and what tells them apart.
//!
//! A single device has all addresses of the host. Several devices have one address each, because a packet
//! belongs to the device whose address it goes to, and so do the ports of a device with two: the addresses
//! that are named, or one of each network interface where the host has as many, or 127.0.0.1, 127.0.0.2, ….

use std::net::{IpAddr, Ipv4Addr};

use pumice_platform::outside::interface::{Interface, gid_addresses};

use super::{DeviceProfile, PortProfile, Profile};
use crate::addresses::gid_table;
use crate::addresses::gid_table::{GidEntry, default_guid, node_guid};
use crate::settings::{
    ADDR, DEFAULT_DEVICE, DEVICES, LINK, LinkSettings, MAX_DEVICES, PROFILE, SettingError, Settings,
};

/// The description of a device of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceDescription {
    /// The name, such as "pumice0".
    pub name: String,
    /// The address of the device, or of its first port; `None`: all of the host's.
    pub address: Option<IpAddr>,
    /// The second port, if there is one. The profile describes the first.
    pub second_port: Option<PortDescription>,
    /// The profile of the device.
    pub profile: Profile,
    /// The node GUID, if it is given.
    node_guid: Option<u64>,
    /// The link settings.
    pub link: LinkSettings,
    /// The network interface that is shown for the device, and its index, where the profile names one: else
    /// it is the one that has the address.
    pub netdev: Option<(String, u32)>,
    /// The number of the nearest NUMA node; -1: none in particular, as sysfs writes it.
    pub numa_node: i32,
    /// The PCI address, such as "0000:18:00.0".
    pub pci_address: Option<String>,
}

/// The description of the second port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortDescription {
    /// The address of the port.
    pub address: IpAddr,
    /// The profile of the port.
    pub profile: PortProfile,
}

impl DeviceDescription {
    /// Returns the GID tables among the host's interfaces: the addresses of the first port, then those of the
    /// second. The list may be empty if the device has no address of its own.
    ///
    /// # Errors
    /// An address is not of this host: EADDRNOTAVAIL.
    pub fn gid_entries(&self, interfaces: &[Interface]) -> Result<Vec<GidEntry>, SettingError> {
        let mut entries = entries_of(self.address, &self.profile.port, interfaces)?;
        if let Some(second) = &self.second_port {
            let own = entries_of(Some(second.address), &second.profile, interfaces)?;
            entries.extend(own.into_iter().map(|entry| entry.at_port(2)));
        }
        Ok(entries)
    }

    /// Returns those of [`gid_entries`](DeviceDescription::gid_entries) whose addresses exist now.
    pub fn existing_gid_entries(&self, interfaces: &[Interface]) -> Vec<GidEntry> {
        let first = entries_of(self.address, &self.profile.port, interfaces).unwrap_or_default();
        let second = self.second_port.iter().flat_map(|port| {
            let own = entries_of(Some(port.address), &port.profile, interfaces).unwrap_or_default();
            own.into_iter().map(|entry| entry.at_port(2))
        });
        first.into_iter().chain(second).collect()
    }

    /// Returns the profiles of the ports, the first one first.
    pub fn ports(&self) -> impl Iterator<Item = &PortProfile> {
        std::iter::once(&self.profile.port).chain(self.second_port.iter().map(|port| &port.profile))
    }

    /// Returns the addresses of the ports, if there are two.
    pub fn addresses_of_ports(&self) -> Vec<IpAddr> {
        let Some(second) = &self.second_port else { return Vec::new() };
        self.address.into_iter().chain([second.address]).collect()
    }

    /// Returns the address by which the device's counters are kept apart, if it is not the only device, or
    /// has two ports.
    pub fn counter_address(&self, is_only: bool) -> Option<IpAddr> {
        self.address.filter(|_| !is_only || self.second_port.is_some())
    }

    /// Returns the GUID of the node, in network byte order: the same in every process. `is_only`: the process
    /// has no other device, so that a link-layer address of the host can be used.
    pub fn guid(&self, is_only: bool, interfaces: &[Interface], gids: &[GidEntry]) -> [u8; 8] {
        match self.node_guid {
            Some(guid) => guid.to_be_bytes(),
            None if is_only => node_guid(interfaces, gids),
            None => default_guid(gids).to_be_bytes(),
        }
    }
}

impl Settings {
    /// Returns the devices that the settings and the profile describe, of which there is at least one.
    ///
    /// # Errors
    /// There are more of them than addresses, or than there can be; two have one name or one address; an
    /// interface does not exist, or has no address.
    pub fn device_descriptions(
        &self,
        profile: &Profile,
        interfaces: &[Interface],
    ) -> Result<Vec<DeviceDescription>, SettingError> {
        let listed = profile.devices.len();
        let count = self.devices.unwrap_or(listed.max(1));
        if listed > MAX_DEVICES || (listed != 0 && count > listed) {
            let problem = if listed > MAX_DEVICES {
                format!("it describes {listed} devices, and a process has at most {MAX_DEVICES}")
            } else {
                format!("it describes {listed} devices, and {DEVICES} asks for {count}")
            };
            return Err(SettingError::new(PROFILE, self.profile.to_string_lossy(), problem));
        }
        let mut addresses = self.own_addresses(&profile.devices, count, interfaces)?.into_iter();
        let first = self.device.as_deref().unwrap_or(DEFAULT_DEVICE);
        let plain = DeviceProfile::default();
        let described = (0..count).map(|index| {
            let own = profile.devices.get(index).unwrap_or(&plain);
            let address = addresses.next().flatten();
            let second = profile.more_ports(own).into_iter().next();
            let second_port = second
                .and_then(|profile| Some(PortDescription { address: addresses.next().flatten()?, profile }));
            let netdev = own.netdev.as_deref().map(|name| {
                let found = interfaces.iter().find(|interface| interface.name == name);
                found.map(|interface| (interface.name.clone(), interface.index)).ok_or_else(|| {
                    let profile = self.profile.to_string_lossy();
                    SettingError::new(PROFILE, profile, not_there(name)).with_errno(libc::ENODEV)
                })
            });
            Ok(DeviceDescription {
                name: own.name.clone().unwrap_or_else(|| continued(first, index, count)),
                address,
                second_port,
                profile: profile.with(own),
                link: self.link.or(&profile.with(own).link),
                node_guid: own.node_guid,
                netdev: netdev.transpose()?,
                numa_node: own.numa_node.unwrap_or(-1),
                pci_address: own.pci_address.clone(),
            })
        });
        let mut described = described.collect::<Result<Vec<DeviceDescription>, SettingError>>()?;
        if let Some(index) = self.gid_index {
            for device in &mut described {
                device.profile.port.first_gid_index = index;
                device.second_port.iter_mut().for_each(|port| port.profile.first_gid_index = index);
            }
        }
        self.check_apart(&described)?;
        described.iter().try_for_each(|one| self.check_link(one))?;
        Ok(described)
    }

    /// Checks that the link settings of the profile and of the variable go together.
    fn check_link(&self, device: &DeviceDescription) -> Result<(), SettingError> {
        device.link.check().map_err(|problem| {
            let problem = format!("the link of {}: {problem}", device.name);
            if self.link == LinkSettings::default() {
                return SettingError::new(PROFILE, self.profile.to_string_lossy(), problem);
            }
            SettingError::new(LINK, self.link_text.clone(), problem)
        })
    }

    /// Returns the address of each port of each device; `None` for the only device of a process, which has
    /// all.
    fn own_addresses(
        &self,
        listed: &[DeviceProfile],
        count: usize,
        interfaces: &[Interface],
    ) -> Result<Vec<Option<IpAddr>>, SettingError> {
        let plain = DeviceProfile::default();
        let devices = || (0..count).map(|index| listed.get(index).unwrap_or(&plain));
        let ports: usize = devices().map(DeviceProfile::port_count).sum();
        if !self.addresses.is_empty() {
            if self.addresses.len() == ports {
                return Ok(self.addresses.iter().copied().map(Some).collect());
            }
            let value = self.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
            let given = self.addresses.len();
            let problem = if ports == count {
                format!(
                    "{given} addresses for {count} devices: name one for each device, and their number with \
                     {DEVICES}"
                )
            } else {
                format!("{given} addresses for {ports} ports: name one for each port of each device")
            };
            return Err(SettingError::new(ADDR, value, problem));
        }
        let says_where = |own: &&DeviceProfile| {
            (0..own.port_count()).any(|port| own.address_and_interface(port) != (None, None))
        };
        if ports == 1 && listed.iter().find(says_where).is_none() {
            return Ok(vec![None]);
        }
        let named =
            devices().flat_map(|own| (0..own.port_count()).map(|port| own.address_and_interface(port)));
        let each =
            usual_addresses(ports, interfaces).into_iter().zip(named).map(|(usual, named)| match named {
                (Some(address), _) => Ok(Some(address)),
                (None, Some(name)) => address_of(name, interfaces).map(Some).map_err(|problem| {
                    SettingError::new(PROFILE, self.profile.to_string_lossy(), problem)
                        .with_errno(libc::ENODEV)
                }),
                (None, None) => Ok(Some(usual)),
            });
        each.collect()
    }

    /// Checks that no two devices have the same name or address, by which they could not be told apart.
    fn check_apart(&self, described: &[DeviceDescription]) -> Result<(), SettingError> {
        for (index, one) in described.iter().enumerate() {
            let earlier = described.get(..index).unwrap_or_default();
            let refuse = |problem: String| {
                let (variable, value) = if self.devices.is_some() {
                    (DEVICES, described.len().to_string())
                } else {
                    (PROFILE, self.profile.to_string_lossy().into_owned())
                };
                Err(SettingError::new(variable, value, problem))
            };
            if earlier.iter().any(|other| other.name == one.name) {
                return refuse(format!(
                    "two devices have the name {}: each needs a name of its own",
                    one.name
                ));
            }
            if let Some(address) = &one.pci_address
                && let Some(other) = earlier.iter().find(|other| other.pci_address == one.pci_address)
            {
                return refuse(format!(
                    "{} and {} have the PCI address {address}: each device needs one of its own, or none",
                    other.name, one.name
                ));
            }
            let of = |device: &DeviceDescription| -> Vec<IpAddr> {
                device.address.into_iter().chain(device.second_port.iter().map(|port| port.address)).collect()
            };
            let own = of(one);
            if let [first, second] = own[..]
                && first == second
            {
                return refuse(format!(
                    "both ports of {} have the address {first}: each port needs an address of its own",
                    one.name
                ));
            }
            for other in earlier {
                if let Some(address) = of(other).into_iter().find(|address| own.contains(address)) {
                    return refuse(format!(
                        "{} and {} have the address {address}: each device needs an address of its own",
                        other.name, one.name
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns the GID table of a port with this address, or of one with all.
///
/// # Errors
/// The address is not of this host: EADDRNOTAVAIL.
fn entries_of(
    address: Option<IpAddr>,
    port: &PortProfile,
    interfaces: &[Interface],
) -> Result<Vec<GidEntry>, SettingError> {
    let mut entries = gid_table::gid_entries(address, interfaces).map_err(|problem| {
        let value = address.map(|address| address.to_string()).unwrap_or_default();
        SettingError::new(ADDR, value, problem).with_errno(libc::EADDRNOTAVAIL)
    })?;
    for entry in &mut entries {
        entry.mtu = entry.mtu.min(port.max_mtu);
        entry.first_index = port.first_gid_index;
    }
    // A table of one entry has the first address.
    entries.truncate(port.max_gids.saturating_sub(port.first_gid_index) as usize);
    Ok(entries)
}

/// Returns one address of each interface that is up, if there are enough of them; else addresses of the
/// loopback interface.
fn usual_addresses(count: usize, interfaces: &[Interface]) -> Vec<IpAddr> {
    let mut each: Vec<(u32, IpAddr)> = Vec::new();
    for (address, interface) in gid_addresses(interfaces) {
        if !interface.loopback && each.iter().all(|(index, _)| *index != interface.index) {
            each.push((interface.index, address));
        }
    }
    if each.len() >= count {
        return each.into_iter().map(|(_, address)| address).take(count).collect();
    }
    (1..=count).map(|last| Ipv4Addr::new(127, 0, 0, u8::try_from(last).unwrap_or(u8::MAX)).into()).collect()
}

/// Returns the first address of an interface.
fn address_of(name: &str, interfaces: &[Interface]) -> Result<IpAddr, String> {
    let Some(interface) = interfaces.iter().find(|interface| interface.name == name) else {
        return Err(not_there(name));
    };
    let first = interface.addresses.iter().map(|(address, _)| *address);
    let first = first.clone().find(IpAddr::is_ipv4).or_else(|| first.clone().next());
    first.filter(|_| interface.up).ok_or_else(|| {
        format!("the network interface {name} is down, or has no address: `ip address` shows it")
    })
}

fn not_there(interface: &str) -> String {
    format!("the network interface {interface} is not there: `ip link` lists those that are")
}

/// Returns the name of the device with an index, where the first has the name `first`: the number in the name
/// is counted up.
fn continued(first: &str, index: usize, count: usize) -> String {
    let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
    match first.get(stem.len()..).unwrap_or_default().parse::<usize>() {
        Ok(number) => format!("{stem}{}", number.saturating_add(index)),
        Err(_) if count == 1 => first.to_owned(),
        Err(_) => format!("{first}{index}"),
    }
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;

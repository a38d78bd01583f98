//! The devices of a process: how many, and what tells them apart.
//!
//! One device has all addresses of the host. Several have one address each, because packets are for the
//! device
//! whose address they go to: the addresses that are named, or one of each network interface where the host
//! has as many, or 127.0.0.1, 127.0.0.2, ….

use std::net::{IpAddr, Ipv4Addr};

use super::{DeviceProfile, Profile};
use crate::addresses::gid_table::GidEntry;
use crate::addresses::guid::{default_guid, node_guid};
use crate::addresses::offered;
use crate::settings::{
    ADDR, CHECK, DEFAULT_DEVICE, DEVICES, LINK, LinkSettings, MAX_DEVICES, PROFILE, RECORD, SettingError,
    Settings,
};
use crate::system::interface::{Interface, gid_addresses};

/// A device of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Its name, such as "pumice0".
    pub name: String,
    /// Its one address; all of the host's when none.
    pub address: Option<IpAddr>,
    /// What it says about itself.
    pub profile: Profile,
    /// Node GUID, if it is said.
    node_guid: Option<u64>,
    /// What its link does to packets.
    pub link: LinkSettings,
    /// Number of the NUMA node that it is near; -1: none in particular, as sysfs writes it.
    pub numa_node: i32,
    /// Where it is on PCI, such as "0000:18:00.0".
    pub pci_address: Option<String>,
}

impl DeviceDescription {
    /// The GID table among the host's interfaces. It may be empty if the device has no address of its own.
    ///
    /// # Errors
    /// The address is not of this host: EADDRNOTAVAIL.
    pub fn gid_entries(&self, interfaces: &[Interface]) -> Result<Vec<GidEntry>, SettingError> {
        let mut entries = offered::gid_entries(self.address, interfaces).map_err(|problem| {
            let value = self.address.map(|address| address.to_string()).unwrap_or_default();
            SettingError::new(ADDR, value, problem).with_errno(libc::EADDRNOTAVAIL)
        })?;
        let most = self.profile.port.max_mtu;
        entries.iter_mut().for_each(|entry| entry.mtu = entry.mtu.min(most));
        Ok(entries)
    }

    /// The GUID of the node, as it travels: the same in every process. `is_only`: the process has no other
    /// device, so that a link-layer address of the host can stand for it.
    pub fn guid(&self, is_only: bool, interfaces: &[Interface], gids: &[GidEntry]) -> [u8; 8] {
        match self.node_guid {
            Some(guid) => guid.to_be_bytes(),
            None if is_only => node_guid(interfaces, gids),
            None => default_guid(gids).to_be_bytes(),
        }
    }
}

impl Settings {
    /// The devices that the settings and the profile describe, of which there is at least one.
    ///
    /// # Errors
    /// There are more of them than addresses, or than there can be; two have one name or one address; an
    /// interface is not there, or has no address.
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
        if count > 1 {
            self.check_alone()?;
        }
        let own = self.own_addresses(&profile.devices, count, interfaces)?;
        let first = self.device.as_deref().unwrap_or(DEFAULT_DEVICE);
        let plain = DeviceProfile::default();
        let described = own.into_iter().enumerate().map(|(index, address)| {
            let own = profile.devices.get(index).unwrap_or(&plain);
            DeviceDescription {
                name: own.name.clone().unwrap_or_else(|| continued(first, index, count)),
                address,
                profile: profile.with(own),
                link: self.link.or(&profile.with(own).link),
                node_guid: own.node_guid,
                numa_node: own.numa_node.unwrap_or(-1),
                pci_address: own.pci_address.clone(),
            }
        });
        let described: Vec<DeviceDescription> = described.collect();
        self.check_apart(&described)?;
        described.iter().try_for_each(|one| self.check_link(one))?;
        Ok(described)
    }

    /// What the profile and the variable say of a link may not go together.
    fn check_link(&self, device: &DeviceDescription) -> Result<(), SettingError> {
        device.link.check().map_err(|problem| {
            let problem = format!("the link of {}: {problem}", device.name);
            if self.link == LinkSettings::default() {
                return SettingError::new(PROFILE, self.profile.to_string_lossy(), problem);
            }
            SettingError::new(LINK, self.link_text.clone(), problem)
        })
    }

    /// Checks and records know the objects of one device only: several number theirs from the same beginning.
    fn check_alone(&self) -> Result<(), SettingError> {
        let problem = |what: &str| format!("{what} one device: name no others");
        if self.check.is_some() {
            return Err(SettingError::new(CHECK, "1", problem("programs are checked with")));
        }
        if let Some(folder) = &self.record {
            return Err(SettingError::new(RECORD, folder.to_string_lossy(), problem("records are of")));
        }
        Ok(())
    }

    /// The address of each device; none for the only one of a process, which has all.
    fn own_addresses(
        &self,
        listed: &[DeviceProfile],
        count: usize,
        interfaces: &[Interface],
    ) -> Result<Vec<Option<IpAddr>>, SettingError> {
        if !self.addresses.is_empty() {
            if self.addresses.len() == count {
                return Ok(self.addresses.iter().copied().map(Some).collect());
            }
            let value = self.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
            let problem = format!(
                "{} addresses for {count} devices: name one for each device, and their number with {DEVICES}",
                self.addresses.len()
            );
            return Err(SettingError::new(ADDR, value, problem));
        }
        let says_where = |own: &&DeviceProfile| own.address.is_some() || own.interface.is_some();
        if count == 1 && listed.iter().find(says_where).is_none() {
            return Ok(vec![None]);
        }
        let usual = usual_addresses(count, interfaces);
        let plain = DeviceProfile::default();
        let each = usual.into_iter().enumerate().map(|(index, usual)| {
            let own = listed.get(index).unwrap_or(&plain);
            match (own.address, own.interface.as_deref()) {
                (Some(address), _) => Ok(Some(address)),
                (None, Some(name)) => address_of(name, interfaces).map(Some).map_err(|problem| {
                    SettingError::new(PROFILE, self.profile.to_string_lossy(), problem)
                        .with_errno(libc::ENODEV)
                }),
                (None, None) => Ok(Some(usual)),
            }
        });
        each.collect()
    }

    /// Two devices of one name or one address could not be told apart.
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
            if let Some(other) = earlier.iter().find(|other| other.address == one.address)
                && let Some(address) = one.address
            {
                return refuse(format!(
                    "{} and {} have the address {address}: each device needs an address of its own",
                    other.name, one.name
                ));
            }
        }
        Ok(())
    }
}

/// One address of each interface that is up, if there are enough of them; else addresses of the loopback
/// interface.
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

/// The first address of an interface.
fn address_of(name: &str, interfaces: &[Interface]) -> Result<IpAddr, String> {
    let Some(interface) = interfaces.iter().find(|interface| interface.name == name) else {
        return Err(format!("the network interface {name} is not there: `ip link` lists those that are"));
    };
    let first = interface.addresses.iter().map(|(address, _)| *address);
    let first = first.clone().find(IpAddr::is_ipv4).or_else(|| first.clone().next());
    first.filter(|_| interface.up).ok_or_else(|| {
        format!("the network interface {name} is down, or has no address: `ip address` shows it")
    })
}

/// The name of the device with an index, where the first has the name `first`: its number goes on.
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

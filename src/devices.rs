//! `pumice devices`: the devices that a program started in the same way has, their ports and GID tables.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr};

use pumice_device::addresses::gid_table;
use pumice_device::outside::interface::{Interface, gid_addresses, interfaces};
use pumice_device::profile::{DeviceDescription, Profile};
use pumice_device::settings::{DEVICES, Settings};
use pumice_transport::types::Mtu;
use serde::Serialize;

use crate::cli::DevicesOptions;
use crate::models;
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::personalities;
use crate::same_host::SameHost;

/// An entry of the GID table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GidEntry {
    /// GID index, as verbs programs use it.
    pub(crate) index: usize,
    pub(crate) address: IpAddr,
    /// Name of the interface that has the address.
    pub(crate) interface: String,
    /// MTU of the link in bytes; 0 if the system does not report it.
    pub(crate) link_mtu_bytes: u32,
}

impl GidEntry {
    /// Returns the GID in the notation of verbs tools: eight full groups.
    pub(crate) fn gid(&self) -> String {
        let address: Ipv6Addr = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        address.segments().map(|group| format!("{group:04x}")).join(":")
    }

    fn path_mtu_bytes(&self) -> Option<usize> {
        Mtu::largest_for_link(self.link_mtu_bytes).map(Mtu::bytes)
    }
}

/// Returns the GID table of this network namespace.
///
/// # Errors
/// The system does not list its interfaces.
pub(crate) fn gid_table() -> io::Result<Vec<GidEntry>> {
    let interfaces = interfaces()?;
    let entries = gid_addresses(&interfaces).into_iter().enumerate();
    Ok(entries
        .map(|(index, (address, interface))| GidEntry {
            index,
            address,
            interface: interface.name.clone(),
            link_mtu_bytes: u32::try_from(interface.mtu).unwrap_or(u32::MAX),
        })
        .collect())
}

/// A device, and the GID tables of its ports.
struct ListedDevice {
    device: DeviceDescription,
    guid: [u8; 8],
    ports: Vec<Vec<GidEntry>>,
}

impl ListedDevice {
    /// Returns its ports with their numbers.
    fn ports(&self) -> impl Iterator<Item = (u8, &[GidEntry])> {
        (1..).zip(self.ports.iter().map(Vec::as_slice))
    }

    /// Returns the name of the link layer of a port.
    fn link_layer(&self, port_num: u8) -> &'static str {
        let port = self.device.ports().nth(usize::from(port_num).saturating_sub(1));
        port.map_or("Ethernet", |port| port.link_layer.name())
    }
}

/// Returns the devices that the environment describes, or `count` of them.
///
/// # Errors
/// A setting is wrong.
fn listed(count: Option<&str>) -> Result<Vec<ListedDevice>, CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::Failed(error.to_string());
    let found = interfaces()
        .map_err(|error| CommandError::Failed(format!("the network interfaces cannot be listed: {error}")))?;
    let given = |name| if name == DEVICES { count.map(OsString::from) } else { None };
    let variable = |name| given(name).or_else(|| std::env::var_os(name));
    let settings = Settings::parse(variable, false).map_err(|error| failed(&error))?;
    let profile: Profile = settings.load_profile().map_err(|error| failed(&error))?;
    let described = settings.device_descriptions(&profile, &found).map_err(|error| failed(&error))?;
    let is_only = described.len() == 1;
    let each = described.into_iter().map(|device| {
        let table = device.gid_entries(&found).map_err(|error| failed(&error))?;
        let guid = device.guid(is_only, &found, &table);
        let of_port = |(number, _)| {
            let own = table.iter().filter(|entry| entry.port_num == number).enumerate();
            own.map(|(index, entry)| shown(entry.first_index as usize + index, entry, &found)).collect()
        };
        let ports = (1..).zip(device.ports()).map(of_port).collect();
        Ok(ListedDevice { device, guid, ports })
    });
    each.collect()
}

fn shown(index: usize, entry: &gid_table::GidEntry, interfaces: &[Interface]) -> GidEntry {
    let interface = interfaces.iter().find(|interface| interface.name == entry.interface);
    GidEntry {
        index,
        address: entry.ip,
        interface: entry.interface.clone(),
        link_mtu_bytes: interface.and_then(|found| u32::try_from(found.mtu).ok()).unwrap_or(0),
    }
}

/// Runs the command.
pub(crate) fn run(options: &DevicesOptions, out: &mut dyn Write) -> CommandResult {
    if options.personalities {
        if options.json {
            personalities::print_json(out)?;
        } else {
            personalities::print(out)?;
        }
        return Ok(Outcome::Good);
    }
    if options.models {
        if options.json {
            models::print_json(out)?;
        } else {
            models::print(out)?;
        }
        return Ok(Outcome::Good);
    }
    let all = listed(options.devices.as_deref())?;
    let same_host = match options.verbose {
        true => Some(SameHost::examine().map_err(|error| CommandError::Failed(error.to_string()))?),
        false => None,
    };
    if options.json {
        print_json(&all, same_host, out)?;
    } else {
        for one in &all {
            for (port_num, gids) in one.ports() {
                let link_layer = one.link_layer(port_num);
                print(&one.device.name, port_num, link_layer, gids, out)?;
            }
        }
        same_host.map_or(Ok(()), |found| found.print(out))?;
    }
    Ok(Outcome::Good)
}

fn print(
    name: &str,
    port_num: u8,
    link_layer: &str,
    table: &[GidEntry],
    out: &mut dyn Write,
) -> io::Result<()> {
    let state = if table.is_empty() { "down" } else { "active" };
    writeln!(out, "{name}  port {port_num}  {link_layer}  {state}")?;
    if table.is_empty() {
        return writeln!(out, "  no GID: no interface that is up has an IP address (ip link set lo up)");
    }
    let width = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
    let addresses = width(&mut table.iter().map(|entry| entry.address.to_string().len())).max(7);
    let names = width(&mut table.iter().map(|entry| entry.interface.len())).max(9);
    writeln!(out, "  GID  {:<39}  {:<addresses$}  {:<names$}  path MTU", "", "address", "interface")?;
    for entry in table {
        let mtu = entry.path_mtu_bytes().map_or("none".to_owned(), |bytes| bytes.to_string());
        writeln!(
            out,
            "  {:>3}  {}  {:<addresses$}  {:<names$}  {mtu}",
            entry.index,
            entry.gid(),
            entry.address.to_string(),
            entry.interface
        )?;
    }
    Ok(())
}

fn print_json(
    all: &[ListedDevice],
    mut same_host: Option<SameHost>,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct Gid<'a> {
        index: usize,
        gid: String,
        address: IpAddr,
        interface: &'a str,
        link_mtu_bytes: u32,
        path_mtu_bytes: Option<usize>,
    }
    #[derive(Serialize)]
    struct Device<'a> {
        name: &'a str,
        port: u8,
        link_layer: &'static str,
        active: bool,
        node_guid: String,
        numa_node: i32,
        #[serde(skip_serializing_if = "Option::is_none")]
        pci_address: Option<&'a str>,
        gids: Vec<Gid<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        same_host: Option<SameHost>,
    }
    let devices: Vec<Device<'_>> = all
        .iter()
        .flat_map(|one| one.ports().map(move |(port, gids)| (one, port, one.link_layer(port), gids)))
        .map(|(ListedDevice { device, guid, .. }, port, link_layer, gids)| Device {
            name: &device.name,
            port,
            link_layer,
            active: !gids.is_empty(),
            node_guid: guid.iter().map(|byte| format!("{byte:02x}")).collect(),
            numa_node: device.numa_node,
            pci_address: device.pci_address.as_deref(),
            gids: gids
                .iter()
                .map(|entry| Gid {
                    index: entry.index,
                    gid: entry.gid(),
                    address: entry.address,
                    interface: &entry.interface,
                    link_mtu_bytes: entry.link_mtu_bytes,
                    path_mtu_bytes: entry.path_mtu_bytes(),
                })
                .collect(),
            // All devices have the same transport between processes, so only the first one shows it.
            same_host: same_host.take(),
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &devices)?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: usize, address: &str) -> GidEntry {
        let address = address.parse().expect("an address");
        GidEntry { index, address, interface: "eth0".to_owned(), link_mtu_bytes: 1500 }
    }

    #[test]
    fn gids_are_the_addresses_in_full() {
        assert_eq!(entry(0, "192.0.2.1").gid(), "0000:0000:0000:0000:0000:ffff:c000:0201");
        assert_eq!(entry(0, "2001:db8::5").gid(), "2001:0db8:0000:0000:0000:0000:0000:0005");
    }

    #[test]
    fn the_table_shows_each_gid_with_its_index_and_path_mtu() {
        let mut out = Vec::new();
        print("pumice0", 1, "Ethernet", &[entry(0, "192.0.2.1"), entry(1, "2001:db8::5")], &mut out)
            .expect("a Vec takes everything");
        let text = String::from_utf8(out).expect("a table is text");
        let line = text.lines().last().expect("lines");
        assert!(line.starts_with("    1  2001:0db8:") && line.ends_with("eth0       1024"), "{text}");
    }
}

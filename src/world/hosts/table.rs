//! The hosts of a world, by number: names, addresses, and what all of them have of their own.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Number of hosts with the same third byte of their addresses.
const HOSTS_OF_BYTE: usize = 250;
/// Largest number of devices of a host, each with an address.
const MAX_DEVICES: usize = 16;

/// The hosts of a world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    /// Addresses of each host, one for each device.
    hosts: Vec<Vec<IpAddr>>,
    /// Folders that each host has of its own, beside that of shared memory.
    pub(super) private_folders: Vec<PathBuf>,
    /// Options of `pumice run` with which programs are started.
    pub(super) run_options: Vec<String>,
}

impl HostTable {
    /// Returns the table of some hosts, with the addresses of a list, or with those of the loopback network
    /// if it is empty.
    ///
    /// # Errors
    /// The list is too short, or hosts have too many devices.
    pub(super) fn new(
        count: usize,
        devices: usize,
        named: &[IpAddr],
        private_folders: Vec<PathBuf>,
    ) -> Result<HostTable, String> {
        if devices > MAX_DEVICES {
            return Err(format!("--devices {devices}: a host of a world has {MAX_DEVICES} at most"));
        }
        if !named.is_empty() && named.len() < count * devices {
            return Err(format!(
                "--hosts {count}: the topology has {} addresses, and {} are needed",
                named.len(),
                count * devices
            ));
        }
        let address = |host: usize, device: usize| match named.get(host * devices + device) {
            Some(address) => *address,
            None => own_address(host, device),
        };
        let hosts = (0..count).map(|host| (0..devices).map(|device| address(host, device)).collect());
        Ok(HostTable { hosts: hosts.collect(), private_folders, run_options: Vec::new() })
    }

    /// Returns the table as a text in one line.
    pub(super) fn text(&self) -> String {
        // Serialization could fail only for maps without string keys, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`HostTable::text`] has written.
    ///
    /// # Errors
    /// Another text, or one without a host.
    pub(super) fn parse(text: &str) -> Result<HostTable, String> {
        let table: HostTable = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if table.hosts.is_empty() { Err("a world has a host at least".to_owned()) } else { Ok(table) }
    }

    /// Returns the name of a host.
    pub(super) fn name(host: usize) -> String {
        format!("host{}", host + 1)
    }

    /// Returns the number of the host that has a name or an address. `here` is the name of the host that
    /// asks.
    pub(super) fn find(&self, asked: &str, here: &str) -> Option<usize> {
        let own = |name: &str| name == "localhost" || name == "127.0.0.1" || name == "::1";
        let asked = if own(asked) { here } else { asked };
        let address = asked.parse::<IpAddr>().ok();
        (0..self.hosts.len()).find(|host| {
            let has = |addresses: &Vec<IpAddr>| address.is_some_and(|address| addresses.contains(&address));
            HostTable::name(*host) == asked || self.hosts.get(*host).is_some_and(has)
        })
    }

    /// Returns the addresses of a host's devices, with commas between them.
    pub(super) fn addresses(&self, host: usize) -> String {
        let addresses = self.hosts.get(host).into_iter().flatten().map(IpAddr::to_string);
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Returns the name and the first address of each host.
    pub(super) fn named(&self) -> impl Iterator<Item = (String, IpAddr)> {
        let first = |(host, addresses): (usize, &Vec<IpAddr>)| {
            addresses.first().map(|address| (HostTable::name(host), *address))
        };
        self.hosts.iter().enumerate().filter_map(first)
    }
}

/// Returns the address of a device of a host, in the world's loopback network.
fn own_address(host: usize, device: usize) -> IpAddr {
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    let (block, within) = (host / HOSTS_OF_BYTE, host % HOSTS_OF_BYTE);
    Ipv4Addr::new(127, byte(device + 1), byte(block), byte(within + 1)).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_device_of_each_host_has_its_address() {
        let table = HostTable::new(1024, 4, &[], Vec::new()).expect("it is right");
        let addresses: BTreeSet<IpAddr> = table.hosts.iter().flatten().copied().collect();
        assert_eq!(addresses.len(), 4096);
        assert!(addresses.iter().all(IpAddr::is_loopback));
        assert_eq!(table.addresses(0), "127.1.0.1,127.2.0.1,127.3.0.1,127.4.0.1");
        assert_eq!(table.addresses(1023), "127.1.4.24,127.2.4.24,127.3.4.24,127.4.4.24");
        assert_eq!(HostTable::parse(&table.text()), Ok(table));
        assert!(HostTable::parse("{}").is_err());
    }

    #[test]
    fn a_host_is_found_by_its_name_and_its_addresses() {
        let listed: Vec<IpAddr> =
            ["127.0.0.9", "127.0.0.8", "127.0.0.7"].map(|one| one.parse().expect("an address")).into();
        let table = HostTable::new(3, 1, &listed, Vec::new()).expect("it is right");
        let found = |asked| table.find(asked, "host2");
        assert_eq!([found("host3"), found("127.0.0.9"), found("localhost")], [Some(2), Some(0), Some(1)]);
        assert_eq!([found("host4"), found("host"), found("127.0.0.1.")], [None; 3]);
        let short = HostTable::new(2, 2, &listed, Vec::new()).expect_err("three addresses");
        assert_eq!(short, "--hosts 2: the topology has 3 addresses, and 4 are needed");
    }
}

//! The hosts of a world, by number, and their files in a folder that all hosts see.
//!
//! The files of hosts, in a folder that all hosts see: names, lists for launchers, the stand-in for ssh, and
//! the folders that each host has of its own.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use pumice_device::outside::output_file::create_private_folder;
use pumice_world::options::{BOOT_ID, Host, folders_of_hosts};
use serde::{Deserialize, Serialize};

use crate::run::own_program;

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

/// Slots of each host in the lists for launchers: the processors that a world shows.
const SLOTS: u32 = 4;

/// The folder of the hosts' files.
#[derive(Debug)]
pub(super) struct HostFiles {
    folder: PathBuf,
}

impl HostFiles {
    /// Returns the files in the folder where processes of pumice meet.
    pub(super) fn new(runtime: &Path) -> HostFiles {
        HostFiles { folder: runtime.join("hosts") }
    }

    /// Returns the files in this folder.
    pub(super) fn at(folder: &Path) -> HostFiles {
        HostFiles { folder: folder.to_owned() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the variables by which launchers find the stand-in and the hosts. `path` is the value of PATH.
    pub(super) fn variables(&self, path: Option<&OsStr>) -> Vec<(&'static str, OsString)> {
        let file = |name: &str| self.folder.join(name).into_os_string();
        let mut with_stand_in = file("bin");
        with_stand_in.push(":");
        with_stand_in.push(path.unwrap_or(OsStr::new("/usr/bin:/bin")));
        vec![
            ("PATH", with_stand_in),
            ("OMPI_MCA_plm_rsh_agent", file("bin/ssh")),
            ("OMPI_MCA_orte_default_hostfile", file("hostfile.openmpi")),
            ("HYDRA_LAUNCHER", "ssh".into()),
            ("HYDRA_LAUNCHER_EXEC", file("bin/ssh")),
            ("HYDRA_HOST_FILE", file("hostfile.mpich")),
        ]
    }

    /// Reports whether a variable tells launchers of a job of this machine's cluster. They would start ranks
    /// by `srun`, or on hosts of the job, which are none of the world's.
    pub(super) fn is_of_job(name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        // A program may read which of an array's jobs it is.
        let is_array = name.starts_with(b"SLURM_ARRAY_");
        let is_of_scheduler = ["SLURM_", "PBS_", "LSB_"].iter().any(|of| name.starts_with(of.as_bytes()));
        name == b"PE_HOSTFILE" || (is_of_scheduler && !is_array)
    }

    /// Writes the files.
    pub(super) fn write(&self, table: &HostTable) -> io::Result<()> {
        // A private folder may hide that in which processes meet.
        self.runtime().map_or(Ok(()), make_folder)?;
        make_folder(&self.folder)?;
        make_folder(&self.folder.join("bin"))?;
        let lines = |line: &dyn Fn(&str, &str) -> String| -> String {
            table.named().map(|(name, address)| line(&name, &address.to_string())).collect()
        };
        let names = lines(&|name, address| format!("{address} {name}\n"));
        let names = format!("127.0.0.1 localhost\n::1 localhost ip6-localhost\n{names}");
        let own = own_program().map_err(io::Error::other)?;
        let stand_in = format!(
            "#!/bin/sh\nexec {} world host --folder {} -- \"$@\"\n",
            quoted(&own),
            quoted(&self.folder)
        );
        for (name, text, mode) in [
            ("table", table.text(), 0o600),
            ("names", names, 0o644),
            ("hostfile.openmpi", lines(&|name, _| format!("{name} slots={SLOTS}\n")), 0o600),
            ("hostfile.mpich", lines(&|name, _| format!("{name}:{SLOTS}\n")), 0o600),
            ("bin/ssh", stand_in, 0o700),
        ] {
            let path = self.folder.join(name);
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
            file.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// Reads the table that was written.
    pub(super) fn table(&self) -> io::Result<HostTable> {
        let text = fs::read_to_string(self.folder.join("table"))?;
        HostTable::parse(&text).map_err(io::Error::other)
    }

    /// Returns a host, whose folders are made if no process has entered it before.
    pub(super) fn host(&self, table: &HostTable, host: usize) -> io::Result<Host> {
        let name = HostTable::name(host);
        let folder = self.folder.join(&name);
        make_folder(&folder)?;
        let (memory, boot_id) = (folder.join("shm"), folder.join("boot_id"));
        let [shown_memory, temporary] = folders_of_hosts();
        make_folder(&memory)?;
        if let Ok(within) = temporary.strip_prefix(shown_memory) {
            make_folder(&memory.join(within))?;
        }
        let id = format!("00000000-0000-4000-8000-{:012x}\n", host + 1);
        fs::write(&boot_id, id)?;
        let mut own = vec![
            (memory, shown_memory.to_owned()),
            (self.folder.join("names"), PathBuf::from("/etc/hosts")),
            (boot_id, PathBuf::from(BOOT_ID)),
        ];
        for (number, shown) in table.private_folders.iter().enumerate() {
            let private = folder.join(format!("private{number}"));
            make_folder(&private)?;
            own.push((private, shown.clone()));
        }
        // Processes of all hosts meet in one folder, also if it is in one that each host has of its own.
        let runtime = self.runtime().unwrap_or(&self.folder);
        let hiding =
            own.iter().rev().find_map(|(own, shown)| Some(own.join(runtime.strip_prefix(shown).ok()?)));
        if let Some(hidden) = hiding {
            fs::create_dir_all(hidden)?;
            own.push((runtime.to_owned(), runtime.to_owned()));
        }
        Ok(Host { name, own })
    }

    /// Returns the folder in which processes of pumice meet.
    fn runtime(&self) -> Option<&Path> {
        self.folder.parent()
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match create_private_folder(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Returns a path as a word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
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

//! The files of hosts, in a folder that all hosts see: names, lists for launchers, the stand-in for ssh, and
//! the folders that each host has of its own.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use pumice_device::outside::output_file::create_private_folder;
use pumice_world::hosts::{BOOT_ID, Host, folders_of_hosts};

use super::table::HostTable;
use crate::run::own_program;

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

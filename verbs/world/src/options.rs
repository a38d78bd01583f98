//! The options of a world, and its hosts.
//!
//! A process enters a host by namespaces for users, mounts, names and IPC, which need no privilege. All hosts
//! have the network and the process numbers of the world.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A host, as a process sees it that has entered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name of the host, as `gethostname` returns it.
    pub name: String,
    /// Files and folders that are the host's own: what it has, and the path at which it shows. A later one
    /// may be in an earlier one.
    pub own: Vec<(PathBuf, PathBuf)>,
}

impl Host {
    /// Lets this process, which has one thread, enter the host; the programs that it executes are there, too.
    ///
    /// # Errors
    /// Namespaces are not allowed here, or a path does not exist; the error names the step.
    pub fn enter(&self) -> io::Result<()> {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        return namespaces::enter(self);
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
        return Err(io::ErrorKind::Unsupported.into());
    }
}

/// File with the identifier of the machine's boot, which libraries take for that of a host.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the name of the host on which this process is.
///
/// # Errors
/// The kernel does not say it.
pub fn own_name() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim_end().to_owned())
}

/// Returns the folders that every host has of its own: shared memory by name, and in it that of temporary
/// files.
pub fn folders_of_hosts() -> [&'static Path; 2] {
    [Path::new("/dev/shm"), Path::new("/dev/shm/tmp")]
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod namespaces {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    use nix::errno::Errno;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::{getgid, getuid, sethostname};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::{Host, Path, io};

    const NOTHING: Option<&str> = None;
    /// Number of files that a process may have open, if it does not ask for more.
    const FILES: u64 = 1024;

    pub(super) fn enter(host: &Host) -> io::Result<()> {
        let (user, group) = (getuid(), getgid());
        let own = CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC;
        step("making namespaces", unshare(own))?;
        // The number of the user stays: a process may map its own one, if it gives up to set groups.
        for (file, text) in [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("{user} {user} 1\n")),
            ("/proc/self/gid_map", format!("{group} {group} 1\n")),
        ] {
            std::fs::write(file, text).map_err(|error| about(&format!("writing {file}"), error))?;
        }
        let private = mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING);
        step("keeping its mounts to itself", private)?;
        // All are opened before the first is mounted, which may hide the others.
        let opened = host.own.iter().map(|(own, _)| open(own)).collect::<io::Result<Vec<File>>>()?;
        for (file, (_, shown)) in opened.iter().zip(&host.own) {
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            let bound =
                mount(Some(own.as_str()), shown, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING);
            step(&format!("mounting {}", shown.display()), bound)?;
        }
        limit_files();
        step("setting its name", sethostname(&host.name))
    }

    /// Limits open files as a session of ssh does. Launchers close all numbers up to the limit, which may be
    /// a million on this machine, in each process that they start.
    fn limit_files() {
        let limit = getrlimit(Resource::Nofile);
        let current = limit.current.map_or(FILES, |current| current.min(FILES));
        // A lower limit is always allowed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    }

    fn open(path: &Path) -> io::Result<File> {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
        opened.map_err(|error| about(&format!("opening {}", path.display()), error))
    }

    fn step<T>(what: &str, done: Result<T, Errno>) -> io::Result<()> {
        done.map(drop).map_err(|errno| about(what, errno.into()))
    }

    fn about(what: &str, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{what}: {error}"))
    }
}

/// The options of a world.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Seed of all decisions that are not determined otherwise.
    pub seed: u64,
    /// Program: a path, or a name that is searched along PATH.
    pub program: OsString,
    /// Arguments of the program, beginning with the name by which it is called.
    pub arguments: Vec<OsString>,
    /// Whole environment of the program.
    pub environment: Vec<(OsString, OsString)>,
    /// Folders that are empty when the world begins, and whose contents are invisible to the machine; those
    /// that do not exist are left out.
    pub private_folders: Vec<PathBuf>,
    /// File into which the run is recorded.
    pub record: Option<PathBuf>,
    /// Recording whose events are expected: the run ends at the first event that differs.
    pub expected: Option<PathBuf>,
    /// File for standard output and standard error of the processes; `None` for those of this process.
    pub output: Option<PathBuf>,
    /// Departures of the schedule from the plain order, by the numbers of decisions; `None` if the seed draws
    /// them. The number of a decision has the thread that ran last, the number of that thread's point, and
    /// the number of the choice at this point.
    pub departures: Option<BTreeMap<u64, Departure>>,
    /// Event at which the run stops: all its processes are stopped for a debugger.
    pub stop_at: Option<u64>,
    /// Time of the world after which the run ends, in s; `None` for no limit.
    pub longest_s: Option<u64>,
    /// The run ends at the first event that may not repeat.
    pub strict: bool,
    /// Frequencies of departures.
    pub draws: Draws,
    /// Calls of the kernel and readings of clocks take no time: the program says by hints what takes time,
    /// and when what it polls for can change.
    pub exact_time: bool,
    /// In exact time, a thread needs the processor time that its computing takes: this is measured, and
    /// differs from run to run.
    pub measures_computing: bool,
    /// The program prepares the run, and executes the program that the run is about. The run begins there:
    /// what happens before is neither decided by the seed nor recorded.
    pub is_starter: bool,
}

impl WorldOptions {
    /// Returns the options of a world of this program, with the environment of this process.
    pub fn new(seed: u64, command: Vec<OsString>) -> WorldOptions {
        WorldOptions {
            seed,
            program: command.first().cloned().unwrap_or_default(),
            arguments: command,
            environment: std::env::vars_os().collect(),
            private_folders: Vec::new(),
            record: None,
            expected: None,
            output: None,
            departures: None,
            stop_at: None,
            longest_s: None,
            strict: false,
            draws: Draws::default(),
            exact_time: false,
            measures_computing: false,
            is_starter: false,
        }
    }
}

/// The frequencies of departures from the plain order, in parts per million of the scheduling points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draws {
    /// Frequency with which another thread continues.
    pub switch_ppm: u32,
    /// Frequency with which the thread rests for a while.
    pub stall_ppm: u32,
    /// Longest rest, in ns.
    pub longest_stall_ns: u64,
    /// Frequency with which the thread rests between two instructions behind the point.
    #[serde(default)]
    pub preempt_ppm: u32,
    /// Threads have priorities, and that of the running one falls where another thread would continue.
    #[serde(default)]
    pub priorities: bool,
}

/// Difference between the numbers of the decisions at two points of a thread in a row.
pub const POINT: u64 = 1 << 12;

/// Maximum number of instructions between a point and a rest behind it.
pub(crate) const MAX_PREEMPTION_STEPS: u64 = 1 << 12;

impl Default for Draws {
    fn default() -> Draws {
        Draws {
            switch_ppm: 250_000,
            stall_ppm: 0,
            longest_stall_ns: 1_000_000,
            preempt_ppm: 0,
            priorities: false,
        }
    }
}

/// A departure from the plain order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// The thread with this index, of those that could continue, oldest first, continues. The plain order
    /// chooses the one that ran last, if it can continue, otherwise the oldest.
    Switch(u32),
    /// The thread that made the call rests for this time, in ns.
    Stall(u64),
    /// The thread runs this number of instructions of its program behind the point, and then rests.
    Preempt {
        /// Number of instructions.
        steps: u64,
        /// Time of the rest, in ns.
        rest_ns: u64,
    },
}

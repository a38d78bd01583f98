//! Hosts of a world: groups of processes, each with its name and with folders of its own.
//!
//! A process enters a host by namespaces for users, mounts, names and IPC, which need no privilege. All hosts
//! have the network and the process numbers of the world.

use std::io;
use std::path::{Path, PathBuf};

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

//! The transport of packets between this user's processes on this host: the setting, what is possible, and
//! the processes that are reached.

use std::io::{self, Write};
use std::net::IpAddr;

use pumice_device::settings::{SettingError, Settings, WIRE, Wire};
use pumice_device::sharing::{PortProcess, RingObstacle, port_processes, try_ring};
use pumice_transport::path::ROCE_PORT;
use serde::Serialize;

use crate::observe::program;

/// The facts about processes of this user on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SameHost {
    wire: Wire,
    /// Source of the setting: the variable's name, or "default".
    wire_from: &'static str,
    /// Processes of this user can share memory here.
    shared_memory: bool,
    /// Reason why they cannot, and the remedy.
    #[serde(flatten)]
    obstacle: Option<Obstacle>,
    /// User whose processes can be reached.
    user: u32,
    /// Network namespace in which they can be reached, as /proc names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    network_namespace: Option<String>,
    /// Processes that have the device now.
    processes: Vec<SharingProcess>,
}

/// The reason why processes cannot share memory, and the remedy, a sentence each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Obstacle {
    #[serde(rename = "obstacle")]
    pub(crate) sentence: String,
    pub(crate) remedy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct SharingProcess {
    pid: u32,
    process_index: u8,
    address: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
}

impl SameHost {
    /// Reads the setting, tries the memory and asks the registry.
    ///
    /// # Errors
    /// The variable has an invalid value.
    pub(crate) fn examine() -> Result<SameHost, SettingError> {
        let (wire, wire_from) = setting()?;
        let obstacle = try_ring().err().map(|obstacle| Obstacle::new(&obstacle));
        let namespace = std::fs::read_link("/proc/self/ns/net").ok();
        Ok(SameHost {
            wire,
            wire_from,
            shared_memory: obstacle.is_none(),
            obstacle,
            user: rustix::process::geteuid().as_raw(),
            network_namespace: namespace.map(|link| link.to_string_lossy().into_owned()),
            // `pumice doctor` reports a registry that cannot be read, as a finding about the device.
            processes: port_processes(ROCE_PORT, None)
                .unwrap_or_default()
                .iter()
                .map(SharingProcess::new)
                .collect(),
        })
    }

    /// Describes the setting.
    pub(crate) fn setting(&self) -> String {
        let from = match self.wire_from {
            WIRE => format!("{WIRE}={}", self.wire.name()),
            _ => format!("--wire {}, the default", self.wire.name()),
        };
        let medium = match (self.wire, self.shared_memory) {
            (Wire::Auto, true) => "shared memory",
            (Wire::Auto, false) => "UDP, because memory cannot be shared here",
            (Wire::Udp, true) => "UDP; by shared memory with --wire auto",
            (Wire::Udp, false) => "UDP",
        };
        format!("{from}: packets to this user's other processes here go by {medium}")
    }

    /// Describes whether memory can be shared.
    pub(crate) fn sharing_possibility(&self) -> Result<&'static str, &Obstacle> {
        match &self.obstacle {
            None => Ok("works: sealed memory came through a private socket and is the same on both sides"),
            Some(obstacle) => Err(obstacle),
        }
    }

    /// Describes which processes can be reached.
    pub(crate) fn reach(&self) -> String {
        let namespace =
            self.network_namespace.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        let mut names = self.processes.iter().map(|process| match &process.program {
            Some(program) => format!("{} ({program})", process.pid),
            None => process.pid.to_string(),
        });
        let shown: Vec<String> = names.by_ref().take(MAX_SHOWN).collect();
        let now = match (shown.is_empty(), names.count()) {
            (true, _) => "none has the device now".to_owned(),
            (false, 0) => format!("now {} have the device: {}", shown.len(), shown.join(", ")),
            (false, more) => {
                format!("now {} have the device: {}, …", shown.len() + more, shown.join(", "))
            }
        };
        format!(
            "processes of user {} in this network namespace{namespace}, unless one has --wire udp; {now}",
            self.user
        )
    }

    /// Prints it below the table of GIDs.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "  wire           {}", self.setting())?;
        match self.sharing_possibility() {
            Ok(sentence) => writeln!(out, "  shared memory  {sentence}")?,
            Err(Obstacle { sentence, remedy }) => {
                writeln!(out, "  shared memory  cannot be used: {sentence}\n{:17}→ {remedy}", "")?;
            }
        }
        writeln!(out, "  reaches        {}", self.reach())
    }
}

/// Maximum number of processes that are named; the others are only counted.
const MAX_SHOWN: usize = 8;

/// Returns the setting of the environment, and its source.
fn setting() -> Result<(Wire, &'static str), SettingError> {
    let variable = |name| std::env::var_os(name).filter(|value| name == WIRE && !value.is_empty());
    let from = if variable(WIRE).is_some() { WIRE } else { "default" };
    Settings::parse(variable, false).map(|settings| (settings.wire, from))
}

impl SharingProcess {
    fn new(sharer: &PortProcess) -> SharingProcess {
        let (process, PortProcess { pid, address, .. }) = (sharer.process(), *sharer);
        SharingProcess { pid, process_index: process.value(), address, program: program(pid) }
    }
}

impl Obstacle {
    fn new(obstacle: &RingObstacle) -> Obstacle {
        let remedy = match obstacle {
            RingObstacle::Memory(error) if is_want_of_memory(error) => {
                "Give this container or user more memory: a ring has 1.3 MiB."
            }
            RingObstacle::Memory(_) => {
                "Allow memfd_create, fallocate and sealing (fcntl F_ADD_SEALS) in this container's seccomp \
                 profile."
            }
            RingObstacle::Folder(_) => "Set XDG_RUNTIME_DIR to a folder of yours that can be written.",
            RingObstacle::Passing(_) => {
                "Allow unix sockets and descriptors in messages (SCM_RIGHTS) between processes of this user \
                 (seccomp, SELinux, AppArmor)."
            }
            RingObstacle::Mapping(_) => {
                "Allow memory of memfd_create to be mapped by other processes of this user (SELinux, \
                 AppArmor)."
            }
            RingObstacle::Bell(_) => {
                "Allow eventfd2 in this container's seccomp profile, and mount /proc, which says what a \
                 descriptor is."
            }
        };
        Obstacle { sentence: obstacle.to_string(), remedy: remedy.to_owned() }
    }
}

fn is_want_of_memory(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wire: Wire, obstacle: Option<RingObstacle>, pids: &[u32]) -> SameHost {
        let neighbour = |pid: &u32| SharingProcess {
            pid: *pid,
            process_index: 3,
            address: IpAddr::from([127, 0, 0, 1]),
            program: (*pid == 7).then(|| "ib_write_bw".to_owned()),
        };
        SameHost {
            wire,
            wire_from: WIRE,
            shared_memory: obstacle.is_none(),
            obstacle: obstacle.as_ref().map(Obstacle::new),
            user: 1000,
            network_namespace: Some("net:[17]".to_owned()),
            processes: pids.iter().map(neighbour).collect(),
        }
    }

    fn printed(same_host: &SameHost) -> String {
        let mut out = Vec::new();
        same_host.print(&mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn setting_and_possibility_are_printed_together() {
        let text = printed(&found(Wire::Auto, None, &[]));
        assert!(text.contains("PUMICE_WIRE=auto") && text.contains("go by shared memory\n"), "{text}");
        assert!(
            text.contains("user 1000") && text.contains("net:[17]") && text.contains("none has"),
            "{text}"
        );
        let refused = || Some(RingObstacle::Memory(io::Error::from(io::ErrorKind::PermissionDenied)));
        let text = printed(&found(Wire::Auto, refused(), &[]));
        assert!(text.contains("go by UDP, because memory cannot be shared"), "{text}");
        assert!(text.contains("→ Allow memfd_create"), "{text}");
        let text = printed(&found(Wire::Udp, refused(), &[]));
        assert!(text.contains("go by UDP\n") && text.contains("cannot be used: memory for a ring"), "{text}");
    }

    #[test]
    fn processes_are_named_as_far_as_there_is_room() {
        let text = found(Wire::Auto, None, &[7, 9]).reach();
        assert!(text.ends_with("now 2 have the device: 7 (ib_write_bw), 9"), "{text}");
        let many: Vec<u32> = (10..30).collect();
        assert!(
            found(Wire::Auto, None, &many)
                .reach()
                .ends_with("now 20 have the device: 10, 11, 12, 13, 14, 15, 16, 17, …")
        );
    }

    #[test]
    fn want_of_memory_has_a_remedy_of_its_own() {
        let full = RingObstacle::Memory(io::Error::from(io::ErrorKind::StorageFull));
        assert!(Obstacle::new(&full).remedy.contains("more memory"));
    }
}

//! Processes of this user and network namespace whose files are in other folders: they have another /tmp, as
//! in a chroot, a container, or a service with a private one.
//!
//! They are found by their socket on the UDP port, which /proc shows, and by its owner's open files: one of
//! them is the folder of the registry. /proc lets this process in only where it could also be a debugger, and
//! the folder has to be this user's alone, as any other. A process that /proc does not show, as in another
//! container, stays unknown; then opening the port is refused.

use std::net::IpAddr;

use super::folder::{self, Folder};
use super::holders::{holders, overlap};
use super::{process, system};

/// Processes of this user that are looked at.
const MAX_PROCESSES: usize = 4096;

/// The folder of a registry that is elsewhere.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) folder: Folder,
    /// The process that has it open.
    pub(super) pid: u32,
}

/// The folder in which processes with a socket on this port that overlaps with `address` have their registry.
pub(super) fn find(port: u16, address: IpAddr) -> Option<Elsewhere> {
    let uid = process::effective_uid();
    let sockets: Vec<String> = holders(port)?
        .iter()
        .filter(|holder| holder.uid == uid && holder.inode != 0 && overlap(holder.address, address))
        .map(|holder| format!("socket:[{}]", holder.inode))
        .collect();
    let registry = folder::file_name(port);
    let processes = system::processes_of(uid).into_iter().filter(|pid| *pid != system::process_id());
    processes.take(MAX_PROCESSES).find_map(|pid| {
        let open = system::descriptors_of(pid);
        let has_socket = open.iter().any(|(_, to)| sockets.iter().any(|socket| to.as_os_str() == &**socket));
        open.iter().filter(|_| has_socket).find_map(|(descriptor, _)| {
            // With the dot it is the folder itself, and not the link of /proc, that is opened.
            let folder = Folder::existing(&descriptor.join(".")).ok()?;
            folder.names().contains(&registry).then_some(Elsewhere { folder, pid })
        })
    })
}

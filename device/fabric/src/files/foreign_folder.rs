//! Processes of this user and network namespace whose files are in other folders, because they have another
//! /tmp, as in a chroot, a container, or a service with a private one.
//!
//! They are found by their socket on the UDP port, which /proc shows, and by the open files of the socket's
//! owner: one of them is the folder of the registry. /proc admits this process only where it could also be a
//! debugger, and the folder has to belong to this user alone, like any other. A process that /proc does not
//! show, as in another container, stays unknown; then opening the port is refused.

use std::net::IpAddr;

use super::folder::{self, Folder};
use crate::members::holders::{holders, overlap};
use crate::members::process;
use crate::system;

/// Number of this user's processes that are examined.
const MAX_PROCESSES: usize = 4096;

/// The folder of a registry that is elsewhere.
#[derive(Debug)]
pub(crate) struct ForeignFolder {
    pub(crate) folder: Folder,
    /// Process that has the folder open.
    pub(crate) pid: u32,
}

/// Finds the folder in which processes with a socket on this port that overlaps with `address` have their
/// registry.
pub(crate) fn find(port: u16, address: IpAddr) -> Option<ForeignFolder> {
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
            // The dot makes this open the folder itself, and not the link below /proc.
            let folder = Folder::existing(&descriptor.join(".")).ok()?;
            folder.names().contains(&registry).then_some(ForeignFolder { folder, pid })
        })
    })
}

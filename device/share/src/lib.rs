//! Many processes, one UDP port, no daemon.
//!
//! Every process has a socket of its own on the RoCE port, all in one SO_REUSEPORT group per address. A
//! [`SharedPort`] is such a socket and four things around it:
//!
//! * **A process index**, 1 to 254: the top byte of the process's queue pair numbers, handed out by a small
//!   registry file (`registry`). There is one file per user, network namespace and UDP port, for all
//!   addresses together. A queue pair number names one process at each address of the host: processes that
//!   may get packets to the same address differ in their indices. Others may have the same one, and differ
//!   in their **member index** (`member_index`), which orders all that processes share.
//! * **Steering** (`steering`): a classic BPF program on the group sends each batch to the socket of the
//!   process that its first packet names. It is an optimisation, and it can be wrong for a while: when a
//!   socket closes, the kernel moves the last one of the group into its place.
//! * **Forwarding** (`relay`): a process that gets a packet of another process forwards the packet through a
//!   unix datagram socket. Forwarding makes delivery right; a process that has to forward also repairs the
//!   steering.
//! * **Backlogs** (`backlog`): what waits in the socket buffers, so that senders of UC and UD do not fill
//!   them. It is a courtesy: without it, or when it is wrong, packets are lost as they would be on a network.
//!
//! Nothing is started and nothing is left behind but the files themselves: a process index is held by a lock
//! of the kernel's, and what a killed process leaves in the registry and beside it is removed by the next one
//! that looks.
//!
//! **Other users** have no part in this: all names are in a folder that belongs to this user and that no
//! other user may enter, and nothing is looked up in a namespace that users share.
//!
//! **Multicast** needs none of this: the kernel gives a group's datagrams to every socket that joined.
//! **Queue pair 1** belongs to all: a message for a connection is steered by the process index in its
//! communication id. Requests, which name a service, are steered to the process that listens (`services`, a
//! second file beside the registry). A request for which no listener is known reaches the running process
//! with the lowest index (`progress`), which forwards it or refuses it. See [`gsi`](pumice_ports::gsi).
//!
//! **Fork**: a child shares the descriptors of its parent, so the parent's index and its place in the group
//! live until the child has exited or called exec, also if the parent ends earlier. A child that exits does
//! not give up the index of a living parent. Packets for an index whose owner is gone go to another process,
//! which drops them.
//!
//! **XRC** (`xrc`): targets of a domain that processes share outlive the process whose index is
//! in their number. One of the processes that have them open adopts the index as soon as its owner, fork
//! children included, is gone.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod asking;
mod backlog;
mod backlog_table;
mod datagram;
mod elsewhere;
mod error;
pub(crate) mod folder;
#[doc(hidden)]
pub mod fuzzing;
mod giving;
mod holders;
mod inspecting;
mod local;
pub(crate) mod lock;
mod medium;
mod member_index;
pub(crate) mod members;
mod membership;
mod memory_folder;
mod neighbours;
mod orders;
mod port;
pub(crate) mod process;
mod progress;
mod published;
pub(crate) mod record;
mod registry;
mod relay;
mod report;
mod ring;
mod runtime_folders;
mod same_host;
mod services;
#[cfg(test)]
mod simulation;
mod sockets;
mod steering;
mod switches;
pub(crate) mod system;
mod trial;
mod turns;
pub(crate) mod wait;
pub mod xrc;

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use pumice_transport::wire::ProcessIndex;

pub use error::{Holder, ShareError};
pub use giving::{Obeyed, Recording, order, record};
pub use inspecting::{Inspected, inspect, inspect_first, inspect_waits};
pub use medium::Medium;
pub use member_index::MemberIndex;
pub use port::{ShareConfig, ShareCounters, ShareStats, SharedPort};
pub use report::{ProcessReport, reports};
pub use runtime_folders::{runtime_folder, runtime_folder_that};
pub use switches::switches;
pub use trial::{RingObstacle, try_ring};

/// The file beside the registry of a UDP port with what the processes of this user count, which the counters
/// below /sys/class/infiniband are read from.
pub fn counted_file_name(port: u16, address: Option<IpAddr>) -> String {
    published::file_name(port, address)
}

use pumice_ports::UdpConfig;
use registry::Registry;

/// Opens the RoCE port of an address (all of the host's when `None`), shared with the other processes of this
/// user. The index is for
/// `HcaConfig::process`.
///
/// # Errors
/// See [`ShareError`].
pub fn open_shared(address: Option<IpAddr>) -> Result<(SharedPort, ProcessIndex), ShareError> {
    let address = address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let port = SharedPort::open(&ShareConfig::new(UdpConfig::new(address)))?;
    let process = port.process();
    Ok((port, process))
}

/// A process that shares a UDP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharer {
    /// Which one.
    pub member: MemberIndex,
    /// Its number, in the PID namespace that it runs in.
    pub pid: u32,
    /// What its socket is bound to.
    pub address: IpAddr,
}

/// The processes that share a UDP port of this network namespace, as this user's registries say. `folder` is
/// that of [`ShareConfig`]; without it, the registries of all folders in which this user's processes may meet
/// are read.
///
/// # Errors
/// The registry cannot be opened or read.
pub fn sharers(port: u16, folder: Option<&Path>) -> Result<Vec<Sharer>, ShareError> {
    let mut all = Vec::new();
    for registry in registries(port, folder)? {
        registry.lock_patiently()?;
        all.extend(sharers_in(&registry)?);
    }
    Ok(all)
}

/// The registries of a UDP port in this folder, or in all that are this user's.
fn registries(port: u16, folder: Option<&Path>) -> Result<Vec<Registry>, ShareError> {
    if let Some(folder) = folder {
        return Ok(vec![Registry::open(folder, port)?]);
    }
    let first = runtime_folder()?;
    let others = runtime_folders::others(&first, &folder::file_name(port));
    std::iter::once(first).chain(others).map(|folder| Registry::open(&folder, port)).collect()
}

/// The processes in a registry. The caller holds the registry's lock.
fn sharers_in(registry: &Registry) -> Result<Vec<Sharer>, ShareError> {
    let loaded = registry.load(&[])?;
    Ok(loaded.members.iter().map(Sharer::from).collect())
}

impl Sharer {
    /// The top byte of its queue pair numbers. Processes with different addresses may have the same.
    pub fn process(&self) -> ProcessIndex {
        self.member.process()
    }
}

impl From<&members::Member> for Sharer {
    fn from(member: &members::Member) -> Sharer {
        Sharer { member: member.index, pid: member.pid, address: member.address }
    }
}

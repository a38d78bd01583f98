//! Port sharing: many processes use one UDP port, without a daemon.
//!
//! Every process has a socket of its own on the RoCE port, all in one SO_REUSEPORT group per address. A
//! [`SharedPort`] is such a socket with four additions:
//!
//! * **A process index**, 1 to 254: the top byte of the process's queue pair numbers, assigned by a small
//!   registry file (`registry`). There is one file per user, network namespace and UDP port, for all
//!   addresses together. A queue pair number names one process at each address of the host: processes that
//!   may get packets to the same address differ in their indices. Others may have the same one, and differ in
//!   their **member index** (`member_index`), which orders all that processes share.
//! * **Steering** (`steering`): a classic BPF program on the group sends each batch to the socket of the
//!   process that its first packet names. It is an optimisation, and it can be wrong for a while: when a
//!   socket closes, the kernel moves the last one of the group into its place.
//! * **Forwarding** (`relay`): a process that gets a packet of another process forwards the packet through a
//!   unix datagram socket. Forwarding makes delivery correct; a process that has to forward also repairs the
//!   steering.
//! * **Backlogs** (`backlog`): the number of bytes that wait in the socket buffers, so that senders of UC and
//!   UD do not fill them. They are not needed for correctness: without them, or when they are wrong, packets
//!   are lost as they would be on a network.
//!
//! No process is started for this, and only the files stay behind: a process index is held by a lock of the
//! kernel's, and the entries that a killed process leaves in the registry and beside it are removed by the
//! next process that reads it.
//!
//! **Other users** cannot take part or interfere: all names are in a folder that belongs to this user and
//! that no other user may enter, and no name is looked up in a namespace that users share.
//!
//! **Multicast** needs none of this: the kernel gives a group's datagrams to every socket that joined.
//! **Queue pair 1** belongs to all processes: a message for a connection is steered by the process index in
//! its communication id. Requests, which name a service, are steered to the process that listens (`services`,
//! a second file beside the registry). A request for which no listener is known reaches the running process
//! with the lowest index (`progress`), which forwards it or refuses it. See [`gsi`](crate::gsi).
//!
//! **Fork**: a child shares the descriptors of its parent, so the parent's index and its place in the group
//! live until the child has exited or called exec, even if the parent ends earlier. A child that exits does
//! not give up the index of a living parent. Packets for an index whose owner has ended go to another
//! process, which drops them.
//!
//! **XRC** (`xrc`): targets of a domain that processes share outlive the process whose index is in their
//! number. One of the processes that have them open adopts the index as soon as its owner, fork children
//! included, has ended.

mod switches;
mod trial;

use std::net::IpAddr;

pub use crate::files::runtime_folders::{runtime_folder, runtime_folder_that};
pub use crate::members::error::{Holder, SharingError};
pub use crate::members::member_index::MemberIndex;
pub use crate::members::process::network_namespace;
pub use crate::queries::commands::{FaultCommandReply, Recording, order, record};
pub use crate::queries::inspecting::{InspectReply, inspect, inspect_first, inspect_waits};
pub use crate::registry::port_processes::{PortProcess, port_processes};
pub use crate::shared_port::report::{ProcessReport, reports};
pub use crate::shared_port::{SharedPort, SharedPortConfig, SharingCounters, SharingStats};
pub use crate::system::medium::Medium;
pub use switches::switches;
pub use trial::{RingObstacle, try_ring};

/// Returns the name of the file, beside the registry of a UDP port, in which the processes of this user
/// count. The counters below /sys/class/infiniband are read from it.
pub fn counted_file_name(port: u16, address: Option<IpAddr>) -> String {
    crate::registry::published::file_name(port, address)
}

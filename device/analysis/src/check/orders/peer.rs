//! The peer of a queue pair.

use std::net::IpAddr;

use pumice_transport::wire::ProcessIndex;

/// The process that a queue pair is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::check) struct PeerProcess {
    pub(in crate::check) address: IpAddr,
    pub(in crate::check) process: ProcessIndex,
}

//! The processes that share a UDP port, as registries list them.

use std::net::IpAddr;
use std::path::Path;

use pumice_transport::wire::ProcessIndex;

use crate::members::error::SharingError;
use crate::members::member_index::MemberIndex;
use crate::registry::Registry;

/// A process that shares a UDP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortProcess {
    /// Member index of the process.
    pub member: MemberIndex,
    /// Process ID, in the PID namespace that the process runs in.
    pub pid: u32,
    /// Address that its socket is bound to.
    pub address: IpAddr,
}

/// Returns the processes that share a UDP port of this network namespace, as this user's registries list
/// them. `folder` is that of [`SharedPortConfig`](crate::shared_port::SharedPortConfig); without it, the
/// registries of all folders in which this user's processes may meet are read.
///
/// # Errors
/// Fails if a registry cannot be opened or read.
pub fn port_processes(port: u16, folder: Option<&Path>) -> Result<Vec<PortProcess>, SharingError> {
    let mut all = Vec::new();
    for registry in registries(port, folder)? {
        registry.lock_patiently()?;
        all.extend(port_processes_in(&registry)?);
    }
    Ok(all)
}

/// Opens the registries of a UDP port in this folder, or in all folders of this user.
pub(crate) fn registries(port: u16, folder: Option<&Path>) -> Result<Vec<Registry>, SharingError> {
    if let Some(folder) = folder {
        return Ok(vec![Registry::open(folder, port)?]);
    }
    let first = crate::files::runtime_folders::runtime_folder()?;
    let others = crate::files::runtime_folders::others(&first, &crate::files::folder::file_name(port));
    std::iter::once(first).chain(others).map(|folder| Registry::open(&folder, port)).collect()
}

/// Returns the processes in a registry. The caller holds the registry's lock.
pub(crate) fn port_processes_in(registry: &Registry) -> Result<Vec<PortProcess>, SharingError> {
    let loaded = registry.load(&[])?;
    Ok(loaded.members.iter().map(PortProcess::from).collect())
}

impl PortProcess {
    /// Returns the top byte of the process's queue pair numbers. Processes with different addresses may have
    /// the same.
    pub fn process(&self) -> ProcessIndex {
        self.member.process()
    }
}

impl From<&crate::members::member::Member> for PortProcess {
    fn from(member: &crate::members::member::Member) -> PortProcess {
        PortProcess { member: member.index, pid: member.pid, address: member.address }
    }
}

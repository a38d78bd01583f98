//! Sockets that share a port (SO_REUSEPORT): the supervisor decides which of them gets a datagram or a
//! connection, because the kernel would choose by a random number of its own.
//!
//! Each change of a group attaches a filter for the number of sockets that it has then. The kernel's tables
//! of sockets say which sockets are still there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use libc::sock_filter;
use nix::sys::socket::{SockType, getsockopt, sockopt};

use super::serve::{CallOutcome, UNCHANGED};
use super::shared_ports::{Filter, GroupName, PortGroups, inode};
use super::steering_filter::{MOST_INSTRUCTIONS, by_sender, confined};
use super::supervisor::Supervisor;
use super::system::{attach_steering, detach_steering};
use super::threads::{Call, ThreadId};
use super::tracee::Tracee;
use crate::error::WorldError;

/// The kernel's tables of sockets that have a port.
const TABLES: [&str; 4] = ["udp", "udp6", "tcp", "tcp6"];
/// Fields of a line of such a table: the socket's own address, its state, and its inode.
const OWN_ADDRESS: usize = 1;
const STATE: usize = 3;
const INODE: usize = 9;
/// States of a socket that is connected, and of a TCP socket that listens.
const CONNECTED: &str = "01";
const LISTENS: &str = "0A";

impl Supervisor {
    /// Adds a socket that has just got its port, or listens now, if it shares its port.
    pub(crate) fn join_group(&mut self, id: ThreadId, descriptor: i32) {
        let Some(file) = self.file(id, i64::from(descriptor)) else { return };
        if getsockopt(&file, sockopt::ReusePort) != Ok(true) {
            return;
        }
        let process = self.threads.get(id).map(|thread| thread.process);
        if let Some((inode, process)) = inode(file.as_fd()).zip(process) {
            self.network.port_groups.sockets.insert(inode, (process, descriptor));
            self.network.port_groups.is_stale = true;
        }
    }

    /// Attaches filters to the groups that have changed.
    ///
    /// # Errors
    /// The run was to be strict, and a filter cannot be attached.
    pub(crate) fn refresh_groups(&mut self) -> Result<(), WorldError> {
        if !std::mem::take(&mut self.network.port_groups.is_stale) {
            return Ok(());
        }
        let Some(leader) = self.threads.processes.values().find(|one| !one.has_ended).map(|one| one.leader)
        else {
            return Ok(());
        };
        let known = &self.network.port_groups.sockets;
        let mut found: BTreeMap<GroupName, BTreeMap<u64, bool>> = BTreeMap::new();
        for table in TABLES {
            let text = std::fs::read_to_string(format!("/proc/{leader}/net/{table}")).unwrap_or_default();
            for (address, inode, state) in
                bound(table, &text).filter(|(_, inode, _)| known.contains_key(inode))
            {
                found.entry((table, address)).or_default().insert(inode, state == CONNECTED);
            }
        }
        let PortGroups { sockets, groups, early_filters, .. } = &mut self.network.port_groups;
        sockets.retain(|inode, _| found.values().any(|members| members.contains_key(inode)));
        groups.retain(|name, _| found.contains_key(name));
        let mut changed = Vec::new();
        for (name, members) in found {
            let group = groups.entry(name.clone()).or_default();
            if group.members == members {
                continue;
            }
            // A socket that joins a group gives its own filter up.
            let early: Vec<Filter> = members.keys().filter_map(|inode| early_filters.remove(inode)).collect();
            if group.members.is_empty() {
                group.filter = early.into_iter().next().unwrap_or_default();
            }
            group.members = members;
            changed.push(name);
        }
        changed.iter().try_for_each(|name| self.steer(name))
    }

    /// Attaches the filter of a group for the sockets that it has.
    fn steer(&mut self, name: &GroupName) -> Result<(), WorldError> {
        let Some(group) = self.network.port_groups.groups.get(name) else { return Ok(()) };
        let sockets = group.members.len() as u32;
        let connected = group.members.values().filter(|is_connected| **is_connected).count() as u32;
        let filter = match group.filter.as_slice() {
            [] if sockets < 2 => return Ok(()),
            // The kernel leaves connected sockets out, which a filter cannot. If one other is left, the
            // kernel has no choice.
            [] if connected > 0 => Filter::new(),
            [] => by_sender(sockets),
            filter => confined(filter, sockets),
        };
        let first = group.members.keys().next().copied().unwrap_or(0);
        let is_steered = match self.socket_of(first) {
            Some(file) if filter.is_empty() => {
                detach_steering(file.as_raw_fd());
                true
            }
            Some(file) => attach_steering(file.as_raw_fd(), &filter),
            None => false,
        };
        let has_choice = filter.is_empty() && sockets - connected > 1;
        if is_steered && !has_choice {
            return Ok(());
        }
        let Some(id) = self.threads.threads.keys().next().copied() else { return Ok(()) };
        self.doubt(id, "shares a port whose datagrams the kernel distributes by chance")
    }

    /// Duplicates a socket by its inode.
    fn socket_of(&mut self, wanted: u64) -> Option<OwnedFd> {
        let (process, descriptor) = self.network.port_groups.sockets.get(&wanted).copied()?;
        let file = self.files.descriptors.get(&process).and_then(|all| all.get(descriptor));
        if let Some(file) = file.filter(|file| inode(file.as_fd()) == Some(wanted)) {
            return Some(file);
        }
        // The descriptor was closed or duplicated, or its process has ended and another one has the socket.
        let link = format!("socket:[{wanted}]");
        for (process, one) in &self.threads.processes {
            let Some(descriptor) = descriptor_with(one.leader.as_raw(), &link) else { continue };
            self.network.port_groups.sockets.insert(wanted, (*process, descriptor));
            return self.files.descriptors.get(process)?.get(descriptor);
        }
        None
    }

    /// Serves `setsockopt` that attaches a filter to the group of a socket, or detaches it.
    pub(crate) fn attach_filter(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [descriptor, _, option, value, ..] = call.arguments();
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        let attaches = option as i32 == libc::SO_ATTACH_REUSEPORT_CBPF;
        let filter = if attaches { read_filter(self.tracee(id)?, value) } else { Some(Filter::new()) };
        let file = self.file(id, i64::from(descriptor as i32));
        let socket = file.and_then(|file| inode(file.as_fd()));
        if let Some((filter, socket)) = filter.zip(socket).filter(|_| result == 0) {
            let groups = &mut self.network.port_groups.groups;
            let name = groups.iter().find(|(_, group)| group.members.contains_key(&socket));
            match name.map(|(name, _)| name.clone()) {
                Some(name) => {
                    if let Some(group) = groups.get_mut(&name) {
                        group.filter = filter;
                    }
                    self.steer(&name)?;
                }
                None => {
                    self.network.port_groups.early_filters.insert(socket, filter);
                }
            }
        }
        self.note(id, &call.name(), result)?;
        self.go(id, None)
    }
}

/// Returns the sockets of a table that have a port: address, inode and state.
fn bound(table: &str, text: &str) -> impl Iterator<Item = (String, u64, String)> {
    let is_stream = table.starts_with("tcp");
    text.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, state] =
            [OWN_ADDRESS, STATE].map(|field| fields.get(field).map(|text| (*text).to_owned()));
        let inode = fields.get(INODE)?.parse().ok()?;
        Some((address?, inode, state?)).filter(|(_, _, state)| !is_stream || state == LISTENS)
    })
}

/// Returns the descriptor of a process whose link is this.
fn descriptor_with(leader: i32, link: &str) -> Option<i32> {
    let entries = std::fs::read_dir(format!("/proc/{leader}/fd")).ok()?;
    let mut found: Vec<i32> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let is_it = std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == link);
            is_it.then(|| entry.file_name().to_str()?.parse().ok())?
        })
        .collect();
    found.sort_unstable();
    found.first().copied()
}

/// Reports whether a socket is one of connections, which shares its port when it listens.
pub(crate) fn is_stream(file: BorrowedFd<'_>) -> bool {
    getsockopt(&file, sockopt::SockType) == Ok(SockType::Stream)
}

/// Reads a filter from the memory of a program, which the kernel has accepted.
fn read_filter(tracee: Tracee, at: u64) -> Option<Filter> {
    let length = tracee.read_u64(at).ok()? as u16;
    let from = tracee.read_u64(at.wrapping_add(8)).ok()?;
    let mut bytes = vec![0; usize::from(length).min(MOST_INSTRUCTIONS) * 8];
    tracee.read(from, &mut bytes).ok()?;
    let instruction = |bytes: &[u8; 8]| {
        let [a, b, jt, jf, c, d, e, f] = *bytes;
        sock_filter { code: u16::from_ne_bytes([a, b]), jt, jf, k: u32::from_ne_bytes([c, d, e, f]) }
    };
    Some(bytes.as_chunks::<8>().0.iter().map(instruction).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_have_a_port_are_of_a_group() {
        let head = "  sl  local_address rem_address st tx rx tr tm uid timeout inode\n";
        let line = |state: &str, inode: u64| {
            format!("  7: 0100007F:12B9 00000000:0000 {state} 0:0 00:00 0 0 0 {inode} 2 0 0\n")
        };
        let text = format!("{head}{}{}", line("07", 5), line("0A", 6));
        let found = |state: &str, inode| ("0100007F:12B9".to_owned(), inode, state.to_owned());
        assert_eq!(bound("udp", &text).collect::<Vec<_>>(), [found("07", 5), found("0A", 6)]);
        assert_eq!(bound("tcp6", &text).collect::<Vec<_>>(), [found("0A", 6)]);
    }
}

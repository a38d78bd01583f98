//! The unix sockets of the processes that share a port: names in the folder of the registry.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::folder::{self, Folder};
use crate::members::member_index::MemberIndex;
use crate::system::DatagramSocket;

/// Result of sending a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    Done,
    /// The receiver does not keep up, and the datagram was dropped.
    Full,
    /// No process has the member index.
    NoProcess,
}

/// The location of the sockets of a registry's processes.
#[derive(Debug, Clone)]
pub(crate) struct Sockets {
    pub(crate) folder: Arc<Folder>,
    /// Prefix of the sockets' names: the name of the registry.
    pub(crate) stem: String,
}

impl Sockets {
    pub(crate) fn new(folder: Folder, stem: String) -> Sockets {
        Sockets { folder: Arc::new(folder), stem }
    }

    /// Removes the name of a member's socket. The registry is locked, and either no process has the member
    /// index or the caller has it.
    pub(crate) fn remove(&self, member: MemberIndex) {
        self.folder.remove(&folder::member_socket_name(&self.stem, member));
    }

    /// Removes the name of a socket for answers.
    pub(crate) fn remove_querier(&self, number: u64) {
        self.folder.remove(&querier_name(&self.stem, number));
    }

    /// Gives a socket the name of a member, in place of one that has it.
    pub(crate) fn name_member(&self, socket: &DatagramSocket, member: MemberIndex) -> io::Result<()> {
        self.name(socket, &folder::member_socket_name(&self.stem, member))
    }

    /// Gives a socket for answers its name.
    pub(crate) fn name_querier(&self, socket: &DatagramSocket, number: u64) -> io::Result<()> {
        self.name(socket, &querier_name(&self.stem, number))
    }

    /// Gives a socket a name, in place of one that has it.
    pub(crate) fn name(&self, socket: &DatagramSocket, name: &str) -> io::Result<()> {
        self.folder.remove(name);
        socket.bind(self.folder.opened(), name)
    }

    /// Sends to the socket that has the name of a member.
    pub(crate) fn send_to_member(
        &self,
        socket: &DatagramSocket,
        member: MemberIndex,
        header: &[u8],
        bytes: &[u8],
    ) -> SendOutcome {
        self.send_to(socket, &folder::member_socket_name(&self.stem, member), header, bytes)
    }

    /// Answers the process that asked with this number.
    pub(crate) fn send_to_querier(&self, socket: &DatagramSocket, number: u64, text: &[u8]) -> SendOutcome {
        self.send_to(socket, &querier_name(&self.stem, number), &[], text)
    }

    /// Sends with a descriptor to the socket that has the name of a member.
    pub(crate) fn send_descriptor_to_member(
        &self,
        socket: &DatagramSocket,
        member: MemberIndex,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> SendOutcome {
        let name = folder::member_socket_name(&self.stem, member);
        outcome(socket.send_descriptor(self.folder.opened(), &name, bytes, descriptor))
    }

    fn send_to(&self, socket: &DatagramSocket, name: &str, header: &[u8], bytes: &[u8]) -> SendOutcome {
        outcome(socket.send(self.folder.opened(), name, header, bytes))
    }

    /// Removes the names of sockets of all member indices without an owner, including those of processes that
    /// were killed before they were in the registry. The registry is locked.
    pub(crate) fn sweep_members(&self, is_taken: impl Fn(MemberIndex) -> bool) {
        let stem = folder::member_socket_stem(&self.stem);
        let member_of = |name: &str| MemberIndex::of_number(name.strip_prefix(&stem)?.parse().ok()?);
        for member in self.folder.names().iter().filter_map(|name| member_of(name)) {
            if !is_taken(member) {
                self.remove(member);
            }
        }
    }

    /// Removes the names of sockets for answers that no process has open. The registry is locked.
    pub(crate) fn sweep_queriers(&self) -> io::Result<()> {
        let probe = DatagramSocket::new()?;
        let stem = querier_stem(&self.stem);
        for name in self.folder.names().into_iter().filter(|name| name.starts_with(&stem)) {
            let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if probe.connect(self.folder.opened(), &name).as_ref().is_err_and(refused) {
                self.folder.remove(&name);
            }
        }
        Ok(())
    }
}

fn outcome(sent: io::Result<()>) -> SendOutcome {
    match sent {
        Ok(()) => SendOutcome::Done,
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => SendOutcome::Full,
            _ => SendOutcome::NoProcess,
        },
    }
}

fn querier_stem(stem: &str) -> String {
    format!("{stem}-ask-")
}

pub(crate) fn querier_name(stem: &str, number: u64) -> String {
    format!("{}{number:x}", querier_stem(stem))
}

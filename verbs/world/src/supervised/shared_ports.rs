//! The table of sockets that share a port.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use libc::sock_filter;
use nix::sys::stat::fstat;

/// First port for sockets that ask for any.
pub(crate) const FIRST_PORT: u16 = 32_768;

/// The table and the address of a group.
pub(crate) type GroupName = (&'static str, String);

/// A filter as programs attach it; empty for none.
pub(crate) type Filter = Vec<sock_filter>;

/// All groups of sockets that share a port.
#[derive(Debug, Default)]
pub(crate) struct PortGroups {
    /// Sockets that may share their port, by inode, each with the process and the descriptor by which it was
    /// last found.
    pub(crate) sockets: BTreeMap<u64, (u32, i32)>,
    /// Filters of sockets that have no port yet.
    pub(crate) early_filters: BTreeMap<u64, Filter>,
    pub(crate) groups: BTreeMap<GroupName, Group>,
    pub(crate) is_stale: bool,
}

/// The sockets that share one port.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Its sockets by inode, each with whether it is connected.
    pub(crate) members: BTreeMap<u64, bool>,
    /// Filter that a program has attached.
    pub(crate) filter: Filter,
}

impl PortGroups {
    /// Notes that sockets of a group may have come or gone.
    pub(crate) fn may_have_changed(&mut self) {
        self.is_stale = !self.sockets.is_empty();
    }

    /// Notes that a descriptor may be closed.
    pub(crate) fn may_lose(&mut self, file: BorrowedFd<'_>) {
        if !self.sockets.is_empty() && inode(file).is_some_and(|inode| self.sockets.contains_key(&inode)) {
            self.is_stale = true;
        }
    }
}

/// Returns the inode of a socket.
pub(crate) fn inode(file: BorrowedFd<'_>) -> Option<u64> {
    fstat(file).ok().filter(|about| about.st_mode & libc::S_IFMT == libc::S_IFSOCK).map(|about| about.st_ino)
}

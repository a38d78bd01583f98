//! Notices that addresses of the host come and go, so that the GID table can follow.
//!
//! The kernel tells through a netlink socket. What changed is not read from there: it only says that it is time to
//! list the addresses anew.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::addresses::gid_table::GidEntry;
use crate::cancellation::whole;

/// Lists the addresses that the GID table should have, in the order in which new ones are to be added. None: they
/// cannot be listed now, and the table stays as it is.
pub type GidSource = Box<dyn FnMut() -> Option<Vec<GidEntry>> + Send>;

/// Links, IPv4 addresses, IPv6 addresses.
const GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Messages that are taken at a time: a bound, as somebody may change addresses all the time.
const MOST_MESSAGES: usize = 1024;

/// The socket, and what lists the addresses.
pub(crate) struct AddressWatch {
    socket: OwnedFd,
    source: GidSource,
    /// Nobody has looked since the socket was opened: what changed just before was not told.
    fresh: bool,
}

impl AddressWatch {
    /// Watches the network namespace of the calling thread.
    ///
    /// # Errors
    /// What socket(2) and bind(2) say; a sandbox may forbid them.
    pub(crate) fn new(source: GidSource) -> io::Result<AddressWatch> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero is a valid sockaddr_nl.
        let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = GROUPS;
        let length = mem::size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is a live sockaddr_nl of the length given.
        let status = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(AddressWatch { socket, source, fresh: true })
    }

    /// Readable when something may have changed.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The addresses now, if something may have changed since the last call; at the first call in any case.
    pub(crate) fn changed(&mut self) -> Option<Vec<GidEntry>> {
        let told = self.drain();
        if mem::take(&mut self.fresh) || told { whole(|| (self.source)()) } else { None }
    }

    /// Takes the messages; whether there were any. Messages that were lost count as well.
    fn drain(&self) -> bool {
        let mut any = false;
        for _ in 0..MOST_MESSAGES {
            let mut start = [0_u8; 16];
            // The rest of a message is cut off.
            // SAFETY: `start` is writable and of the length given.
            let taken = whole(|| unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    start.as_mut_ptr().cast(),
                    start.len(),
                    libc::MSG_DONTWAIT,
                )
            });
            if taken < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOBUFS) {
                break;
            }
            any = true;
        }
        any
    }
}

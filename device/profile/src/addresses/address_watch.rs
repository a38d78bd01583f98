//! Notices that addresses of the host come and go, so that the GID table can follow.
//!
//! The kernel tells through a netlink socket. What changed is not read from there: it only says that it is
//! time to list the addresses anew.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use pumice_ground::outside::cancellation::whole;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::addresses::gid_table::GidEntry;

/// Lists the addresses that the GID table should have, in the order in which new ones are to be added. None:
/// they cannot be listed now, and the table stays as it is.
pub type GidSource = Box<dyn FnMut() -> Option<Vec<GidEntry>> + Send>;

/// Links, IPv4 addresses, IPv6 addresses.
const GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Messages that are taken at a time: a bound, because other programs may change addresses all the time.
const MOST_MESSAGES: usize = 1024;

/// The socket, and what lists the addresses.
pub struct AddressWatch {
    socket: OwnedFd,
    source: GidSource,
    /// The addresses were not listed yet: the socket does not tell what changed before it was opened.
    fresh: bool,
}

impl AddressWatch {
    /// Watches the network namespace of the calling thread.
    ///
    /// # Errors
    /// What socket(2) and bind(2) say; a sandbox may forbid them.
    pub fn new(source: GidSource) -> io::Result<AddressWatch> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol: NETLINK_ROUTE is 0.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(AddressWatch { socket, source, fresh: true })
    }

    /// Readable when something may have changed.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The addresses now, if something may have changed since the last call; at the first call in any case.
    pub fn changed(&mut self) -> Option<Vec<GidEntry>> {
        let told = self.drain();
        if mem::take(&mut self.fresh) || told { whole(|| (self.source)()) } else { None }
    }

    /// Takes the messages; whether there were any. Messages that were lost count as well.
    fn drain(&self) -> bool {
        let mut any = false;
        for _ in 0..MOST_MESSAGES {
            // The rest of a message is cut off.
            match recv(&self.socket, &mut [0_u8; 16], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}

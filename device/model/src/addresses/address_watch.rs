//! A watch for changes of the host's addresses, by which the GID table is updated.
//!
//! The kernel reports changes through a netlink socket. Its messages are not parsed: they only show that it
//! is time to list the addresses again.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use pumice_platform::outside::cancellation::without_cancellation;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::addresses::gid_table::GidEntry;

/// A function that lists the addresses that the GID table should have, in the order in which new ones are
/// added. `None`: they cannot be listed now, and the table stays as it is.
pub type GidSource = Box<dyn FnMut() -> Option<Vec<GidEntry>> + Send>;

/// The netlink groups: links, IPv4 addresses, IPv6 addresses.
const GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Most messages that are taken at a time, because other programs may change addresses all the time.
const MAX_MESSAGES: usize = 1024;

/// The socket, and the function that lists the addresses.
pub struct AddressWatch {
    socket: OwnedFd,
    source: GidSource,
    /// True if the addresses were not listed yet: the socket does not report changes before it was opened.
    fresh: bool,
}

impl AddressWatch {
    /// Watches the network namespace of the calling thread.
    ///
    /// # Errors
    /// The error of socket(2) or bind(2); a sandbox may forbid them.
    pub fn new(source: GidSource) -> io::Result<AddressWatch> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol is left out: NETLINK_ROUTE is 0.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(AddressWatch { socket, source, fresh: true })
    }

    /// Returns a descriptor that is readable when something may have changed.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns the present addresses, if something may have changed since the last call; at the first call in
    /// any case.
    pub fn changed(&mut self) -> Option<Vec<GidEntry>> {
        let notifications = self.drain();
        if mem::take(&mut self.fresh) || notifications {
            without_cancellation(|| (self.source)())
        } else {
            None
        }
    }

    /// Takes the messages, and returns whether there were any. Messages that were lost count as well.
    fn drain(&self) -> bool {
        let mut any = false;
        for _ in 0..MAX_MESSAGES {
            // The rest of a message is cut off.
            match recv(&self.socket, &mut [0_u8; 16], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}

//! Requirements that port sharing has on the port below it.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use crate::UdpPort;
use pumice_model::port::Port;

/// A port whose socket is in a group with those of other processes, and whose batches the kernel steers to
/// one socket of the group.
pub trait Medium: Port {
    /// Returns the address that the socket is bound to; a wildcard stands for all addresses of the host.
    fn address(&self) -> IpAddr;

    /// Returns the UDP port of the group.
    fn port(&self) -> u16;

    /// Returns the socket whose group has the steering program.
    fn steered_socket(&self) -> RawFd;
}

impl Medium for UdpPort {
    fn address(&self) -> IpAddr {
        UdpPort::address(self)
    }

    fn port(&self) -> u16 {
        UdpPort::port(self)
    }

    fn steered_socket(&self) -> RawFd {
        self.as_raw_fd()
    }
}

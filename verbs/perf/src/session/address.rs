//! The address of the client's device.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use crate::control::Control;
use crate::error::{PerfError, Result};

/// Destination port of RoCEv2 packets.
const UDP_PORT: u16 = 4791;

/// Returns the address of this end's device: the given one, or the one through which the server is reached,
/// or, if that is taken on a machine that is the server's as well, another loopback address.
pub(super) fn device_address(control: &Control, requested: Option<IpAddr>) -> Result<IpAddr> {
    if let Some(requested) = requested {
        return Ok(requested);
    }
    let (local, peer) = control.addresses().map_err(|error| PerfError::Control(error.to_string()))?;
    let free = |address: IpAddr| UdpSocket::bind((address, UDP_PORT)).is_ok();
    let same_machine = local == peer || peer.is_loopback();
    if !same_machine || (local != peer && free(local)) {
        return Ok(local);
    }
    if local.is_ipv6() {
        return Err(PerfError::SameAddress(local));
    }
    let mut candidates = (2..255).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
    let found = candidates.find(|address| *address != peer && free(*address));
    found.ok_or(PerfError::NoLoopbackAddress)
}

//! Addresses and ports of identifiers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pumice_device::gsi::{BindingId, ConnectionError, ServiceEntry};
use pumice_transport::cm::Place;
use pumice_transport::mad::ServiceId;

use super::identifier::{Id, Stage, State};
use super::shared::{Shared, all, random, shared_with};
use crate::ground::errno::{Errno, INVALID};
use crate::rdma_cm::address::local;

/// Ports for identifiers whose program names none.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;

/// Gives an identifier an address, and a port if it names none.
pub(crate) fn bind(id: &Arc<Id>, state: &mut State, mut address: SocketAddr) -> Result<(), Errno> {
    if state.stage != Stage::Idle {
        return Err(INVALID.because(|| "this identifier has an address already".to_owned()));
    }
    let shared = shared_with(address.ip())?;
    let hca = shared.hca();
    // As in Linux, 127.0.0.1 and ::1 choose no device, just as 0.0.0.0 chooses none, unless they are the
    // device's own addresses. libfabric relies on this: it binds 127.0.0.1 first. If the identifier then has
    // a device, libfabric tells 127.0.0.1 to its peers on other hosts; if not, it tells them the device's
    // address.
    let own = if address.ip().is_unspecified() { None } else { Some(local::own(hca, address.ip())?) };
    let own = own.filter(|entry| entry.ip == address.ip());
    // An address that others may use as well is reserved only when the identifier listens.
    if !(state.options.reuse_address && address.port() != 0) {
        state.bindings = reserve(id, &mut address, state.options.one_family)?;
    }
    state.local = Some(address);
    state.stage = Stage::Bound;
    id.show_addresses(state);
    if let Some(entry) = own {
        id.attach(shared, entry.port_num);
    }
    Ok(())
}

/// Where the service of an address is offered. As with sockets, `::` means the addresses of both families,
/// unless the program or the host wants otherwise.
fn place(address: IpAddr, one_family: Option<bool>) -> Place {
    if !address.is_unspecified() {
        return Place::At(address.into());
    }
    let host_wants_one =
        || std::fs::read("/proc/sys/net/ipv6/bindv6only").is_ok_and(|set| set.starts_with(b"1"));
    match address {
        IpAddr::V4(_) if one_family.unwrap_or(true) => Place::Ipv4,
        IpAddr::V6(_) if one_family.unwrap_or_else(host_wants_one) => Place::Ipv6,
        _ => Place::Everywhere,
    }
}

/// Binds the service of an address, on the device that has the address, or on all devices; chooses the port
/// if that is 0. What is bound, with the place of the device.
pub(crate) fn reserve(
    id: &Id,
    address: &mut SocketAddr,
    one_family: Option<bool>,
) -> Result<Vec<(usize, BindingId)>, Errno> {
    let space = id.port_space();
    let place = place(address.ip(), one_family);
    let entry = |port| ServiceEntry { service_id: ServiceId::rdma_cm(space, port), mask: u64::MAX, place };
    let devices =
        if address.ip().is_unspecified() { all()? } else { std::slice::from_ref(shared_with(address.ip())?) };
    if address.port() != 0 {
        return Ok(bind_on(devices, &entry(address.port()))?);
    }
    let (first, count) = (ephemeral_port() - EPHEMERAL.start, EPHEMERAL.len() as u16);
    for step in 0..count {
        let port = EPHEMERAL.start + (first + step) % count;
        match bind_on(devices, &entry(port)) {
            Ok(bindings) => {
                address.set_port(port);
                return Ok(bindings);
            }
            Err(ConnectionError::Directory { error, .. }) if error.errno() == libc::EADDRINUSE => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno(libc::EADDRNOTAVAIL))
}

/// Binds a service on each of these devices, or on none.
fn bind_on(devices: &[Shared], entry: &ServiceEntry) -> Result<Vec<(usize, BindingId)>, ConnectionError> {
    let mut bound = Vec::new();
    for device in devices {
        match device.hca().cm_bind(entry) {
            Ok(binding) => bound.push((device.index(), binding)),
            Err(error) => {
                for (device, (_, binding)) in devices.iter().zip(bound) {
                    // It was just bound.
                    let _ = device.hca().cm_unbind(binding);
                }
                return Err(error);
            }
        }
    }
    Ok(bound)
}

/// A port for an identifier that connects. No peer looks for it, so that several identifiers may have the
/// same.
pub(crate) fn ephemeral_port() -> u16 {
    EPHEMERAL.start + (random() % u32::from(EPHEMERAL.end - EPHEMERAL.start)) as u16
}

//! Addresses and ports of identifiers.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pumice_device::gsi::{BindingId, ConnectionError, ServiceEntry};
use pumice_device::outside;
use pumice_device::outside::capability::may_bind_low_ports;
use pumice_transport::cm::ListenScope;
use pumice_transport::mad::ServiceId;

use super::identifier::{Id, Stage, State};
use super::ports::{self, Owner};
use super::shared::{SharedDevice, all, random, shared_at, shared_with};
use crate::ground::errno::{Errno, INVALID};
use crate::rdma_cm::address::local;

/// Ports for identifiers whose program names none.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;
/// The first port that every program may have.
const FIRST_OF_ALL: u16 = 1024;

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
    //= man:rdma_bind_addr
    //| An identifier that is bound to an address of a device gets that device.
    let own = if address.ip().is_unspecified() { None } else { Some(local::own(hca, address.ip())?) };
    let own = own.filter(|entry| entry.ip == address.ip());
    state.bindings = claim(id, state, &mut address)?;
    state.local = Some(address);
    state.stage = Stage::Bound;
    id.show_addresses(state);
    if let Some(entry) = own {
        id.attach(shared, entry.port_num);
    }
    Ok(())
}

/// Has the identifier get the port of an address, or one that is free if that is 0, in this process and on
/// the devices.
fn claim(id: &Arc<Id>, state: &State, address: &mut SocketAddr) -> Result<Vec<(usize, BindingId)>, Errno> {
    let (space, options) = (id.port_space(), &state.options);
    //= linux:cma.c#cma_use_port
    //| Ports below 1024 need the capability CAP_NET_BIND_SERVICE.
    if (1..FIRST_OF_ALL).contains(&address.port()) && !may_bind_low_ports() {
        let port = address.port();
        return Err(Errno(libc::EACCES).because(|| {
            format!("port {port}: those below 1024 need the capability CAP_NET_BIND_SERVICE, as on Linux")
        }));
    }
    let shares = options.reuse_address && address.port() != 0;
    let owner = |address: SocketAddr| Owner {
        id: id.as_ptr().addr(),
        address,
        one_family: is_of_one_family(address, options.one_family),
        reuses: options.reuse_address,
    };
    let chosen = address.port() != 0;
    if chosen {
        ports::claim(space, owner(*address))?;
    }
    let port = address.port();
    let bindings = reserve(id, address, options.one_family)
        .inspect_err(|_| ports::release(space, id.as_ptr().addr(), port))?;
    if !chosen && let Err(errno) = ports::claim(space, owner(*address)) {
        // Another thread was quicker.
        let _ = release_on_devices(bindings);
        return Err(errno);
    }
    if !shares {
        return Ok(bindings);
    }
    // No other process has it. It is reserved when the identifier listens; until then others of this process
    // may have it as well.
    release_on_devices(bindings)?;
    Ok(Vec::new())
}

/// # Errors
/// Those of the devices.
fn release_on_devices(bindings: Vec<(usize, BindingId)>) -> Result<(), Errno> {
    for (index, binding) in bindings {
        shared_at(index)?.hca().cm_unbind(binding)?;
    }
    Ok(())
}

/// A bound identifier says anew how it shares its port: it is reserved again when the identifier listens.
///
/// # Errors
/// Those of the devices.
pub(crate) fn share_anew(id: &Id, state: &mut State) -> Result<(), Errno> {
    let Some(local) = state.local else { return Ok(()) };
    let options = &state.options;
    let (one_family, reuses) = (is_of_one_family(local, options.one_family), options.reuse_address);
    ports::change(id.port_space(), id.as_ptr().addr(), local.port(), |own| {
        (own.one_family, own.reuses) = (one_family, reuses);
    });
    release_on_devices(mem::take(&mut state.bindings))
}

/// Reserves the port that a bound identifier shared with others until now: it is about to listen.
///
/// # Errors
/// Another identifier has it still.
pub(crate) fn stop_sharing(id: &Id, state: &State) -> Result<Vec<(usize, BindingId)>, Errno> {
    let mut address = state.local.ok_or(INVALID)?;
    ports::stop_sharing(id.port_space(), id.as_ptr().addr(), address.port())?;
    reserve(id, &mut address, state.options.one_family)
}

/// Where the service of an address is offered. As with sockets, `::` means the addresses of both families,
/// unless the program or the host wants otherwise.
fn place(address: IpAddr, one_family: Option<bool>) -> ListenScope {
    if !address.is_unspecified() {
        return ListenScope::At(address.into());
    }
    match address {
        _ if !is_of_one_family(SocketAddr::new(address, 0), one_family) => ListenScope::Everywhere,
        IpAddr::V4(_) => ListenScope::Ipv4,
        IpAddr::V6(_) => ListenScope::Ipv6,
    }
}

/// Whether an identifier of an address is in the way of its own family only; `chosen`: by the program.
fn is_of_one_family(address: SocketAddr, chosen: Option<bool>) -> bool {
    let host_wants_one =
        || outside::files::fact("/proc/sys/net/ipv6/bindv6only").is_ok_and(|set| set.starts_with(b"1"));
    chosen.unwrap_or_else(|| address.is_ipv4() || host_wants_one())
}

/// The errno when another process has the port: as in Linux, an address is in use, and all addresses together
/// are not available.
fn taken(address: &SocketAddr, error: ConnectionError) -> Errno {
    let in_use = Errno::from(error);
    match in_use {
        Errno(libc::EADDRINUSE) if address.ip().is_unspecified() => Errno(libc::EADDRNOTAVAIL),
        other => other,
    }
}

/// Binds the service of an address, on the device that has the address, or on all devices; chooses the port
/// if that is 0. What is bound, with the index of the device.
fn reserve(
    id: &Id,
    address: &mut SocketAddr,
    one_family: Option<bool>,
) -> Result<Vec<(usize, BindingId)>, Errno> {
    let space = id.port_space();
    let place = place(address.ip(), one_family);
    let entry =
        |port| ServiceEntry { service_id: ServiceId::rdma_cm(space, port), mask: u64::MAX, scope: place };
    let devices =
        if address.ip().is_unspecified() { all()? } else { std::slice::from_ref(shared_with(address.ip())?) };
    if address.port() != 0 {
        return bind_on(devices, &entry(address.port())).map_err(|error| taken(address, error));
    }
    //= man:rdma_bind_addr
    //| For port 0 a free port is chosen.
    let (first, count) = (ephemeral_port() - EPHEMERAL.start, EPHEMERAL.len() as u16);
    for step in 0..count {
        let port = EPHEMERAL.start + (first + step) % count;
        if !ports::is_unused(space, port) {
            continue;
        }
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
fn bind_on(
    devices: &[SharedDevice],
    entry: &ServiceEntry,
) -> Result<Vec<(usize, BindingId)>, ConnectionError> {
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

//! Addresses and ports of identifiers.
//!
//! Ports that identifiers of this process have, and the rules of Linux for sharing them (`cma_check_port`).
//! The devices handle other processes.

use std::collections::BTreeMap;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::gsi::{BindingId, ConnectionError, ServiceEntry};
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::process::may_bind_low_ports;
use pumice_transport::cm::ListenScope;
use pumice_transport::mad::{PortSpace, ServiceId};

use super::shared::{SharedDevice, all, random, shared_at, shared_with};
use super::{Id, IdStage, IdState};
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::address::lookup;

/// An identifier that has a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortOwner {
    /// Address of the identifier in memory, which identifies it here.
    pub(crate) id: usize,
    pub(crate) address: SocketAddr,
    /// True if all addresses are those of one family.
    pub(crate) one_family: bool,
    /// True if it shares the port with others that do.
    reuses: bool,
}

type PortKey = (u16, u16);

/// Owners of each port.
type PortOwners = BTreeMap<PortKey, Vec<PortOwner>>;

static OWNERS: PerProcess<Mutex<PortOwners>> = PerProcess::new(|_| Mutex::default());

fn owners() -> MutexGuard<'static, PortOwners> {
    OWNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn key(space: PortSpace, port: u16) -> PortKey {
    (space as u16, port)
}

impl PortOwner {
    /// # Errors
    /// Fails with EADDRNOTAVAIL if one of both has all addresses, and with EADDRINUSE if they have the same
    /// one.
    fn check_coexistence(&self, other: &PortOwner) -> Result<(), Errno> {
        let families_differ = self.address.is_ipv4() != other.address.is_ipv4();
        if self.one_family && other.one_family && families_differ {
            return Ok(());
        }
        let (own, its) = (self.address.ip(), other.address.ip());
        let errno = match () {
            //= linux:cma.c#cma_check_port
            //| A port that another identifier has at all addresses is not available.
            () if own.is_unspecified() || its.is_unspecified() => libc::EADDRNOTAVAIL,
            () if own == its => libc::EADDRINUSE,
            () => return Ok(()),
        };
        let port = self.address.port();
        Err(Errno(errno).because(|| {
            format!(
                "another identifier of this process has port {port} at {its}: choose another port, or set \
                 RDMA_OPTION_ID_REUSEADDR of both before they are bound"
            )
        }))
    }
}

/// Claims a port for an identifier.
///
/// # Errors
/// Fails if another one has it, and not both share it.
pub(crate) fn claim(space: PortSpace, owner: PortOwner) -> Result<(), Errno> {
    let mut owners = owners();
    let same = owners.entry(key(space, owner.address.port())).or_default();
    let mut others = same.iter().filter(|other| !(owner.reuses && other.reuses));
    others.try_for_each(|other| owner.check_coexistence(other))?;
    same.push(owner);
    Ok(())
}

/// Makes an identifier the only owner of a port that it shared, because it listens.
///
/// # Errors
/// Fails if another one has it, too.
fn stop_sharing(space: PortSpace, id: usize, port: u16) -> Result<(), Errno> {
    let mut owners = owners();
    let Some(same) = owners.get_mut(&key(space, port)) else { return Ok(()) };
    let Some(own) = same.iter().find(|owner| owner.id == id).copied() else { return Ok(()) };
    same.iter().filter(|other| other.id != id).try_for_each(|other| own.check_coexistence(other))?;
    same.iter_mut().filter(|owner| owner.id == id).for_each(|owner| owner.reuses = false);
    Ok(())
}

/// Changes how a bound identifier shares its port.
pub(crate) fn change(space: PortSpace, id: usize, port: u16, change: impl FnOnce(&mut PortOwner)) {
    let mut owners = owners();
    let same = owners.get_mut(&key(space, port));
    if let Some(own) = same.and_then(|same| same.iter_mut().find(|owner| owner.id == id)) {
        change(own);
    }
}

/// Reports whether no identifier has a port.
fn is_unused_port(space: PortSpace, port: u16) -> bool {
    !owners().contains_key(&key(space, port))
}

/// Releases the port of an identifier, if it has one.
pub(crate) fn release_port(space: PortSpace, id: usize, port: u16) {
    let mut owners = owners();
    if let Some(same) = owners.get_mut(&key(space, port)) {
        same.retain(|owner| owner.id != id);
        if same.is_empty() {
            owners.remove(&key(space, port));
        }
    }
}

/// Range of ports for identifiers whose program names none.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;
/// Lowest port that an unprivileged program may have.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// Gives an identifier an address, and a port if the address has none.
pub(crate) fn bind(id: &Arc<Id>, state: &mut IdState, mut address: SocketAddr) -> Result<(), Errno> {
    if state.stage != IdStage::Idle {
        return Err(INVALID.because(|| "this identifier has an address already".to_owned()));
    }
    let shared = shared_with(address.ip())?;
    let hca = shared.hca();
    // As in Linux, 127.0.0.1 and ::1 select no device, just as 0.0.0.0 selects none, unless they are the
    // device's own addresses. libfabric relies on this: it binds 127.0.0.1 first. If the identifier then has
    // a device, libfabric sends 127.0.0.1 to its peers on other hosts; if not, it sends them the device's
    // address.
    //= man:rdma_bind_addr
    //| An identifier that is bound to an address of a device gets that device.
    let own = if address.ip().is_unspecified() { None } else { Some(lookup::own(hca, address.ip())?) };
    let own = own.filter(|entry| entry.ip == address.ip());
    state.bindings = claim_port_of(id, state, &mut address)?;
    state.addresses.local = Some(address);
    state.stage = IdStage::Bound;
    id.show_addresses(state);
    if let Some(entry) = own {
        id.attach(shared, entry.port_num);
    }
    Ok(())
}

/// Claims the port of an address for the identifier, or a free one if that is 0, in this process and on the
/// devices.
fn claim_port_of(
    id: &Arc<Id>,
    state: &IdState,
    address: &mut SocketAddr,
) -> Result<Vec<(usize, BindingId)>, Errno> {
    let (space, options) = (id.port_space(), &state.options);
    //= linux:cma.c#cma_use_port
    //| Ports below 1024 need the capability CAP_NET_BIND_SERVICE.
    if (1..FIRST_UNPRIVILEGED).contains(&address.port()) && !may_bind_low_ports() {
        let port = address.port();
        return Err(Errno(libc::EACCES).because(|| {
            format!("port {port}: those below 1024 need the capability CAP_NET_BIND_SERVICE, as on Linux")
        }));
    }
    let shares = options.reuse_address && address.port() != 0;
    let owner = |address: SocketAddr| PortOwner {
        id: id.as_ptr().addr(),
        address,
        one_family: is_of_one_family(address, options.one_family),
        reuses: options.reuse_address,
    };
    let chosen = address.port() != 0;
    if chosen {
        claim(space, owner(*address))?;
    }
    let port = address.port();
    let bindings = reserve(id, address, options.one_family)
        .inspect_err(|_| release_port(space, id.as_ptr().addr(), port))?;
    if !chosen && let Err(errno) = claim(space, owner(*address)) {
        // Another thread was faster.
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
/// Fails with the errors of the devices.
fn release_on_devices(bindings: Vec<(usize, BindingId)>) -> Result<(), Errno> {
    for (index, binding) in bindings {
        shared_at(index)?.hca().cm_unbind(binding)?;
    }
    Ok(())
}

/// Applies a bound identifier's changed options for sharing its port: it is reserved again when the
/// identifier listens.
///
/// # Errors
/// Fails with the errors of the devices.
pub(crate) fn update_port_sharing(id: &Id, state: &mut IdState) -> Result<(), Errno> {
    let Some(local) = state.addresses.local else { return Ok(()) };
    let options = &state.options;
    let (one_family, reuses) = (is_of_one_family(local, options.one_family), options.reuse_address);
    change(id.port_space(), id.as_ptr().addr(), local.port(), |own| {
        (own.one_family, own.reuses) = (one_family, reuses);
    });
    release_on_devices(mem::take(&mut state.bindings))
}

/// Reserves the port that a bound identifier has shared with others, because it is about to listen.
///
/// # Errors
/// Fails if another identifier still has it.
pub(crate) fn stop_sharing_of(id: &Id, state: &IdState) -> Result<Vec<(usize, BindingId)>, Errno> {
    let mut address = state.addresses.local.ok_or(INVALID)?;
    stop_sharing(id.port_space(), id.as_ptr().addr(), address.port())?;
    reserve(id, &mut address, state.options.one_family)
}

/// Returns the scope in which the service of an address is offered. As with sockets, `::` stands for the
/// addresses of both families, unless the program or the host wants otherwise.
fn listen_scope(address: IpAddr, one_family: Option<bool>) -> ListenScope {
    if !address.is_unspecified() {
        return ListenScope::At(address.into());
    }
    match address {
        _ if !is_of_one_family(SocketAddr::new(address, 0), one_family) => ListenScope::Everywhere,
        IpAddr::V4(_) => ListenScope::Ipv4,
        IpAddr::V6(_) => ListenScope::Ipv6,
    }
}

/// Reports whether an identifier of an address conflicts only with its own family; `chosen` is the program's
/// choice.
fn is_of_one_family(address: SocketAddr, chosen: Option<bool>) -> bool {
    let host_wants_one =
        || outside::files::fact("/proc/sys/net/ipv6/bindv6only").is_ok_and(|set| set.starts_with(b"1"));
    chosen.unwrap_or_else(|| address.is_ipv4() || host_wants_one())
}

/// Returns the errno when another process has the port: as in Linux, one address is in use, and all addresses
/// together are not available.
fn map_in_use(address: &SocketAddr, error: ConnectionError) -> Errno {
    let in_use = Errno::from(error);
    match in_use {
        Errno(libc::EADDRINUSE) if address.ip().is_unspecified() => Errno(libc::EADDRNOTAVAIL),
        other => other,
    }
}

/// Binds the service of an address, on the device that has the address, or on all devices; chooses the port
/// if that is 0. Returns the bindings, with the index of the device.
fn reserve(
    id: &Id,
    address: &mut SocketAddr,
    one_family: Option<bool>,
) -> Result<Vec<(usize, BindingId)>, Errno> {
    let space = id.port_space();
    let listen_scope = listen_scope(address.ip(), one_family);
    let entry = |port| ServiceEntry {
        service_id: ServiceId::rdma_cm(space, port),
        mask: u64::MAX,
        scope: listen_scope,
    };
    let devices =
        if address.ip().is_unspecified() { all()? } else { std::slice::from_ref(shared_with(address.ip())?) };
    if address.port() != 0 {
        return bind_on(devices, &entry(address.port())).map_err(|error| map_in_use(address, error));
    }
    //= man:rdma_bind_addr
    //| For port 0 a free port is chosen.
    let (first, count) = (ephemeral_port() - EPHEMERAL.start, EPHEMERAL.len() as u16);
    for step in 0..count {
        let port = EPHEMERAL.start + (first + step) % count;
        if !is_unused_port(space, port) {
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

/// Returns a port for an identifier that connects. Peers do not search for it, so several identifiers may
/// have the same one.
pub(crate) fn ephemeral_port() -> u16 {
    EPHEMERAL.start + (random() % u32::from(EPHEMERAL.end - EPHEMERAL.start)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: usize, address: &str, reuses: bool) -> PortOwner {
        let address: SocketAddr = address.parse().unwrap();
        PortOwner { id, address, one_family: address.is_ipv4(), reuses }
    }

    #[test]
    fn ports_are_shared_as_linux_shares_them() {
        let space = PortSpace::Tcp;
        let claim = |id, address, reuses| claim(space, owner(id, address, reuses)).err();
        let (in_use, not_available) = (Some(Errno(libc::EADDRINUSE)), Some(Errno(libc::EADDRNOTAVAIL)));
        assert_eq!(claim(1, "127.0.0.1:7", false), None);
        assert_eq!(claim(2, "127.0.0.1:7", false), in_use);
        assert_eq!(claim(2, "127.0.0.1:7", true), in_use, "the first does not share");
        assert_eq!(claim(2, "127.0.0.2:7", false), None);
        assert_eq!(claim(3, "0.0.0.0:7", false), not_available);
        assert_eq!(claim(3, "[::]:7", false), not_available, "it has addresses of both families");
        assert_eq!(super::claim(space, PortOwner { one_family: true, ..owner(3, "[::]:7", false) }), Ok(()));
        assert_eq!(super::claim(PortSpace::Udp, owner(4, "127.0.0.1:7", false)), Ok(()));
        assert_eq!(claim(5, "127.0.0.1:8", true), None);
        assert_eq!(claim(6, "127.0.0.1:8", true), None);
        assert_eq!(claim(7, "0.0.0.0:8", false), not_available);
        assert_eq!(stop_sharing(space, 5, 8).err(), in_use);
        release_port(space, 6, 8);
        assert_eq!(stop_sharing(space, 5, 8), Ok(()));
        assert_eq!(claim(6, "127.0.0.1:8", true), in_use, "one that listens shares no longer");
        assert!(!is_unused_port(space, 8));
        release_port(space, 5, 8);
        release_port(space, 5, 8);
        assert!(is_unused_port(space, 8));
        assert_eq!(stop_sharing(space, 5, 8), Ok(()));
    }
}
